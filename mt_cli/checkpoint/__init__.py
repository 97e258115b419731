"""The run directory: what is in it, and how it is written and read."""
