"""Models from and for other programs: imports and exports, each compared with our own output."""
