"""Values of `Desired`: frozen, resolved, without defaults to fill in. Imports nothing else of this package."""
