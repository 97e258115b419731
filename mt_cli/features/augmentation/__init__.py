"""Augmented training pairs: pairs with a made-up name or number on both sides, and concatenated pairs."""
