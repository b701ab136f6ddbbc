"""The cases that a contract is made of: one file a kind, one visible table."""
