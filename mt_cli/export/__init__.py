"""A trained run for other engines: written, checked against our own output, and used."""
