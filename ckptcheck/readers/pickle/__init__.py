"""Pickles as raw values: a stack machine of our own, and what stands for each class that a pickle names."""
