"""Rules over one checkpoint as it lies, one file a family."""
