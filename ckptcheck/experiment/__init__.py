"""The resume experiment: what a target is, the processes that train it, and what they say."""
