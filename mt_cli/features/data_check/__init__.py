"""What is suspicious in a corpus: slipped lines, other languages, odd pairs."""
