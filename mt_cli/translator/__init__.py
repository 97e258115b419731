"""Text to text with a trained run: the Python API."""
