"""Values of `Desired`: frozen, resolved, without defaults to fill in. Imports only `problems.py` of this package."""
