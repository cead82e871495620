"""Values that the rules pass on and the ledger keeps. No rules."""
