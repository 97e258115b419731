"""The built-in practice corpora. `phrasebook-en-it` is the TSV files in this folder."""
