"""The daemon's HTTP listener. Imported only when the Instance has `push`, because it needs the extra `serve`."""
