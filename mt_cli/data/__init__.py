"""Corpora prepared for a run: read, filtered, encoded and described."""
