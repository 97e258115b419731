"""Documents in, documents out: their text is translated, and everything else stays byte for byte."""
