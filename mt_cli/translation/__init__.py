"""From lines of text to segments for the search, and from hypotheses to translated lines with details."""
