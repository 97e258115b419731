"""The dataset and collator layer. Knows ids; does not know text or models."""
