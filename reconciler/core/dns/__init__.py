"""Which record sets each name should have, and in which order they may be written."""
