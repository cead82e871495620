"""Whether a container may be restarted for failed health, or because an operator requested it."""
