"""Dataset and collator: the pairs of a run, encoded, changed for training, packed and batched. Ids only; no models."""
