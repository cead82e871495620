"""Where manifests come from: each module turns a place into a `SourceTree`, one revision of a set of files."""
