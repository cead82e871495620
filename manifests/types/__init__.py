"""Types of single values: their checks, and the messages for bad values."""
