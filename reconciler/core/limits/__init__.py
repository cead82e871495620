"""What people, windows, budgets and time forbid, whatever the health of anything."""
