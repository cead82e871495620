"""Informs operators: channels of notices and the statuses of commits, beside the loop and never in its way."""
