"""Pages and schemas that are generated from the models."""
