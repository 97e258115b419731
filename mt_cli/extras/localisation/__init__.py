"""Translation memories (TMX) and message catalogues (gettext)."""
