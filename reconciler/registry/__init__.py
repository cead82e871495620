"""What registries of images say about tags and digests."""
