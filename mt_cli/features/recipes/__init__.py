"""Choice of options by the data: `preset: auto` and `mt init`."""
