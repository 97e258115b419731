"""Training pairs of a run, with subword sampling and augmentation if its config asks for them."""

from __future__ import annotations

from mt_cli.config.sections import Config
from mt_cli.data.augmentation import changed_texts
from mt_cli.data.batches import TrainingPairs
from mt_cli.data.concatenation import concatenated_pairs
from mt_cli.data.prepare import Data, corpus_pairs
from mt_cli.data.sampled_pairs import resegmented
from mt_cli.runtime.group import ALONE, Group


def training_pairs(data: Data, config: Config, group: Group = ALONE) -> TrainingPairs:
    """Pairs of `train`: changed, segmented anew and concatenated in every epoch if the config says so."""
    pairs: TrainingPairs = corpus_pairs(data, config, group)
    if config.changes_texts:
        pairs = changed_texts(pairs, data.tokenizers, config)
    if config.tokenizer.is_sampled:
        pairs = resegmented(pairs, data.tokenizers, config)
    if config.training.concatenated_pairs:
        source = data.tokenizers[0]
        pairs = concatenated_pairs(pairs, (source.tag_ids, source.target_tag_ids), config)
    return pairs
