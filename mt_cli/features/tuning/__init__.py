"""Beam size and length penalty chosen on the validation set."""
