"""Snapshots: what a host observed at one moment, so that a plan can be made elsewhere without any access to it.

snapshot.py    the value, taken from a decision; masked for export; checked before it is used
document.py    the value as JSON and back
signature.py   the signed file
"""
