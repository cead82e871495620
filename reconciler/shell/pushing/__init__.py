"""Pushes of instances: who may say what, and what is kept of it."""
