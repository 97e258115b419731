"""The Transformer, from scratch. Knows tensors of ids; does not know text, losses or search."""
