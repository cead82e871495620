"""Drift and change held apart: what the manifests moved, what the world moved, and what is done about the latter."""
