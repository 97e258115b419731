"""Reading and checking parallel text. Knows files and the Hugging Face hub; does not know tokens."""
