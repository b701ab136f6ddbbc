"""The rules over what a probe found out."""
