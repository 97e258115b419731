"""Suspicious text in corpora: slipped lines, other languages, marks of other programs, odd pairs."""
