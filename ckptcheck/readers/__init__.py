"""How bytes lie in every container we read. Nothing is executed, no class is imported, torch is not needed."""
