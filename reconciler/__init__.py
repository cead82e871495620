"""Observe, decide, act: the reconcile loop and its command line."""
