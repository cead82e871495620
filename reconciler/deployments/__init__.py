"""Images that are written into the manifests: by `reconcile deploy`, by `POST /v1/deployments` and by image policies.

edit.py       the image of a container in the text of its file, checked with all manifests
patch.py      an edit as text that `git apply` takes
message.py    what a commit and a merge request say
writer.py     an edit of a git source: as a commit, a merge request or a patch
records.py    the file that remembers deployments and choices of policies over restarts
choices.py    images of policies that roll out without a commit
service.py    the daemon's side: one thread that writes, for both

What policies look for is decided in `reconciler/core/images.py`, which images are taken back in `reconciler/core/image_choices.py`; registries are asked by `reconciler/registry/`.
"""
