"""Lines of text and the details of their translations, on both sides of the search."""
