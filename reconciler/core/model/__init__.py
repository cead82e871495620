"""Values that the rules exchange and the ledger keeps. No rules of decisions."""
