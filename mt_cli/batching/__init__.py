"""Encoded pairs, their packed layout, and their batches (dataset and collator). Knows ids; no text or models."""
