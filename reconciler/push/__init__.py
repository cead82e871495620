"""The push client, `reconcile push`. Standard library only, because it runs inside containers."""
