"""A training run, from its config to its report."""
