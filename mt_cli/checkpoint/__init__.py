"""A run directory: what is in it, how it is written and read, and the models that a run or its parents have."""
