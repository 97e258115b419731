"""The Transformer, its key/value cache, and its fast operations with that of the loss. Does not know text or search."""
