"""The state of every object as rows for the operator and for scripts."""
