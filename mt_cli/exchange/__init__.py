"""Import of models from other programs, and export to other programs. Exported models are compared with our output."""
