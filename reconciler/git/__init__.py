"""Manifests from a git repository: our mirror of it, and the files that a set of manifests reads.

The address of a set is `manifests/source/git_url.py`, what an operator says about it `manifests/kinds/source.py`.

mirror.py   a bare mirror that fetches commits and reads objects; the only module that runs git
tree.py     the directory that holds what a set reads of one commit
doctor.py   whether this host can use a git source
reader.py   polls a remote, and answers which files the manifests are now

`reconciler/tree.py` makes the reader of a run or command; `shell/source.py` puts what it reads in force.
"""
