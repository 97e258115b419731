"""The Transformer, its key/value cache, and fast operations, also for the loss. Does not know text or search."""
