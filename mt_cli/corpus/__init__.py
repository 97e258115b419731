"""Pairs of texts: formats, sources, the Hugging Face hub, filters. Texts only; no ids."""
