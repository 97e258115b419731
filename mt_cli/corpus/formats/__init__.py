"""Files of parallel text: one module a format."""
