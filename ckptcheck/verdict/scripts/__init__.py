"""The resume experiment on commands, judged: a case for each rank, and one result over all of them."""
