"""State on disk: ledger, journal, inbox, last decision, audit, evidence; and the lock that allows one writer."""
