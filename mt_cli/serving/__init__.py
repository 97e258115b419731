"""HTTP server that translates with trained runs: LibreTranslate's interface, one of our own, and a page for people."""
