"""Search: from a model's probabilities to ids of translations."""
