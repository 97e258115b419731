"""Quality of a model: loss and accuracy on pairs, scores of translations, and comparison with a baseline."""
