"""Zip and tar archives: their directories, their members, and the checkpoints in them."""
