"""Whom to believe about the health of one container: facts, people, its own pushes, probes."""
