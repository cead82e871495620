"""YAML 1.2 as text, strictly: read with positions, and edited in place."""
