"""Steps of a decision as calls of providers: journalled, bounded in time, read back."""
