"""Vocabularies: their training, and texts to ids and back."""
