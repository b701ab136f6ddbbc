"""Folders of files: which of them belong together, which are missing, and which checkpoint of a run is meant."""
