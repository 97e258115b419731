"""How good a model is: loss and accuracy on pairs, scores of translations. Knows no files."""
