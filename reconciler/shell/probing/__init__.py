"""Which probes run for what was observed, and the verdicts that come back."""
