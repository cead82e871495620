"""Reference pages and the JSON Schema, generated from the models."""
