"""How a container leaves service: out of names, out of pools, drained, stopped."""
