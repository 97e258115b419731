"""Facts of a text and what follows from them: `mt init`, `mt data check`, spellings, `mt doctor`."""
