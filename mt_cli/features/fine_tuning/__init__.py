"""Runs that begin from another run: its weights, tokenizers and, as replay, its data."""
