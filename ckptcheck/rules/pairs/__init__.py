"""Rules over two checkpoints of one training, the earlier one left, one file a family."""
