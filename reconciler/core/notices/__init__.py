"""Notices: what operators are informed of, decided from what each decision shows. Pure."""
