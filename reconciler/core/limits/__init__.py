"""Limits on actions that do not depend on health: suspensions, windows, rates, waiting times and the guard of deletions."""
