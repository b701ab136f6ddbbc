"""The recorder inside a script that knows nothing of it. Needs the standard library and torch, nothing else."""
