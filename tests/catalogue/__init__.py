"""The fault catalogue: what is planted into real trainings, what `verify` must say of it, and the figures.

`python -m tests.catalogue` runs the whole of it and prints recall, causes and false alarms by family.
"""
