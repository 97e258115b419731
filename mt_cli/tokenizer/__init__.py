"""Tokenizers: texts to ids and back. Knows text and ids; does not know batches or models."""
