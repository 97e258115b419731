"""Choice of options by the data, for `mt init`."""
