"""Differences of spelling and language between texts, for advice on a config. Training does not use this package."""
