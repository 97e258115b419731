"""Augmented training pairs: changed texts, made-up words on both sides, and concatenated pairs."""
