"""Probing: the targets of the probe engine, made from manifests and facts, and its verdicts."""
