"""The state of every object, as rows for operators and scripts."""
