"""Carries out the steps of a decision as calls of providers: journalled, within deadlines, read back."""
