"""The three files that torch.save has written over the years."""
