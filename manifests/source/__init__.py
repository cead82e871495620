"""Where manifests come from: a directory or a file becomes a `SourceTree`, one revision of a set of files."""
