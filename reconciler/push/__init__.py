"""The client that instances push their state with. Standard library only, because it runs inside containers."""
