"""Values of options found from the data: `preset: auto` and `mt init`."""
