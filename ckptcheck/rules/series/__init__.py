"""Rules over the checkpoints of one run in a row."""
