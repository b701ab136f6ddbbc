"""Who wrote a checkpoint, and what its parts mean: from raw values to one training state by parameter name."""
