"""From checked manifests to `Desired`: references followed, defaults applied, conflicts found."""
