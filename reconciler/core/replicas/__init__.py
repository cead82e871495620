"""Which container is whose, what it is for, and how many replicas are available."""
