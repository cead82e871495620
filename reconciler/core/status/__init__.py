"""The state of every object as rows for people and scripts."""
