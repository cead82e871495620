"""Types of single values: what they may look like, and what to say when they do not."""
