"""What is kept on disk: ledger, journal, inbox, last decision, audit, evidence; and the lock that lets one process write it."""
