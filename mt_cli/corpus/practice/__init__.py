"""The built-in practice corpora, which need no download.

`phrasebook-en-it` has English and Italian sentences that a grammar generated, in a compressed TSV file per split. Its
split `test_compositional` has only combinations of words (adjective and noun, verb and object) that are not in `train`.
`reverse-words` is generated when it is read.
"""
