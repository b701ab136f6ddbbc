"""How bytes lie in every container we read. Nothing is executed, no class is imported, torch is not needed.

`reading` goes from a path to a raw tree and `table` lists the readers; each room holds one family of formats.
"""
