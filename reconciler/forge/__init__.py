"""Clients of forges: commit statuses, comments and merge requests."""
