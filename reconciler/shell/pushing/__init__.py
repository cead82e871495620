"""Pushes: credentials of senders, and the pushes taken from them."""
