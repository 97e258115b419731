"""Texts to ids and back."""
