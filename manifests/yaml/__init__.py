"""Strict YAML 1.2: read with positions, and edited in place."""
