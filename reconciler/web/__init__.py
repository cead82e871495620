"""What the daemon serves over HTTP. Imported only when the Instance says that it listens: it needs the extra `serve`."""
