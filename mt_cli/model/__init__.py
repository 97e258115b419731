"""The Transformer, its key/value cache, and fast operations, also for the loss. Tensors only; no text or search."""
