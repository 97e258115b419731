"""Models from and for other programs: imports and exports. Exports to engines are compared with our own output."""
