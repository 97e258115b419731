"""A run, or several beside each other, as one page that needs no network."""
