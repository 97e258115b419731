"""Reading and checking parallel text. Knows files, hubs and generators; does not know tokens."""
