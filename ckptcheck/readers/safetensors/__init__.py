"""safetensors files, alone, in shards with an index, and in the pieces of ranks."""
