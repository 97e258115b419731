"""Quality of a model: loss and accuracy on pairs, scores of translations. Knows no files."""
