"""Rules over a dry-run: a checkpoint held against the training that shall load it, one file a family."""
