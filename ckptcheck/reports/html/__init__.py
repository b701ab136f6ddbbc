"""The page: one file to look at, with everything in it."""
