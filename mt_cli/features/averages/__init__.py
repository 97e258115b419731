"""Means of checkpoints and of runs."""
