"""What was decided and done, for people, scripts and the audit."""
