"""Training pairs made of those that are there: with a made-up name or number, and concatenated."""
