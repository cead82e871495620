"""Looks: when each provider is read, the facts that result, and the triggers of early looks."""
