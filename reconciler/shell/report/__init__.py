"""Reports of decisions and actions: to the operator, to scripts and to the audit."""
