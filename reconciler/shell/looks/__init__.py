"""When each provider is read, and what makes that sooner."""
