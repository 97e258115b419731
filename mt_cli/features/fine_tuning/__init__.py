"""Runs that begin from another run: its weights and tokenizers."""
