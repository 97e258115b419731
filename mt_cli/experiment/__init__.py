"""A whole run. Wires the other rooms."""
