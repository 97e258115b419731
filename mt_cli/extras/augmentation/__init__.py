"""More training pairs from those that are there: concatenated pairs, and copies of targets."""
