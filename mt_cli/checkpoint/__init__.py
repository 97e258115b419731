"""Every option of a run, with its default and its limits."""
