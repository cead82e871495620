"""Steps and their actions: each step does exactly one action."""
