"""What one step does: exactly one action each."""
