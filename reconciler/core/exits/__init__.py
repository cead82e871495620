"""The exit of a container: out of names, out of pools, drained, stopped."""
