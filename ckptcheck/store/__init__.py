"""The complete, pickle-free, atomic save and load of a training state.

A store is a folder: payloads in safetensors format under names that are never used twice, and one manifest,
replaced atomically and last. A crash at any point leaves the old state or the new one, whole.
"""
