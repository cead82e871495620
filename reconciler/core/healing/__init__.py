"""Whether a container may be restarted for its health, or because a person asked for it."""
