"""Environments: the documents of `environments/NAME/` are merged over those of the base, by object and by field. Pure.

`shape.py` says which lists have keys, `merge.py` merges two documents and keeps where each value stands, `objects.py` merges all documents of
a tree, and `render.py` shows the result. Called by `load.py` and `places.py`.
"""
