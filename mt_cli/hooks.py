"""The list of all commands, and how the core reaches extras: the only module that names them.

A room of the core calls `hooks.NAME(...)`. The extra is imported at this moment; if it is missing, InputError names it
and the option that needs it. `hooks.has("NAME")` is for what the core can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mt_cli.errors import InputError

if TYPE_CHECKING:  # For mypy, which so knows the signatures.
    import typer

    from mt_cli.config.sections import Config
    from mt_cli.extras.augmentation.pairs import augmented as augmented
    from mt_cli.extras.averages.averages import average_at_end as average_at_end
    from mt_cli.extras.comet import comet_score as comet_score
    from mt_cli.extras.comet import load_comet as load_comet
    from mt_cli.extras.data_check.known import known_problems as known_problems
    from mt_cli.extras.data_check.known import refuse_processed as refuse_processed
    from mt_cli.extras.data_check.problems import Problem as Problem
    from mt_cli.extras.data_check.slips import first_misaligned_line as first_misaligned_line
    from mt_cli.extras.exchange.ctranslate2 import load_served as load_served
    from mt_cli.extras.exchange.huggingface import unsupported as unsupported
    from mt_cli.extras.fine_tuning.parent import ParentRun as ParentRun
    from mt_cli.extras.fine_tuning.parent import adopt as adopt
    from mt_cli.extras.fine_tuning.parent import inherited as inherited
    from mt_cli.extras.fine_tuning.replay import replayed_before as replayed_before
    from mt_cli.extras.fine_tuning.replay import with_replay as with_replay
    from mt_cli.extras.inspection.figures import save_attention as save_attention
    from mt_cli.extras.inspection.training_pictures import attention_pictures as attention_pictures
    from mt_cli.extras.localisation.gettext import GETTEXT as GETTEXT
    from mt_cli.extras.localisation.tmx import TMX as TMX
    from mt_cli.extras.recipes.auto import Circumstances as Circumstances
    from mt_cli.extras.recipes.auto import resolve_preset as resolve_preset
    from mt_cli.extras.recipes.new_config import config_of_folder as config_of_folder
    from mt_cli.extras.sharding.fsdp import skeleton as skeleton
    from mt_cli.extras.sharding.sharded_state import ShardedState as ShardedState
    from mt_cli.extras.subword_sampling.pairs import resegmented as resegmented
    from mt_cli.extras.tuning.at_end import tune_at_end as tune_at_end

COMMANDS = (
    "mt_cli.extras.recipes.command",
    "mt_cli.extras.data_check.command",
    "mt_cli.extras.doctor.command",
    "mt_cli.cli.train",
    "mt_cli.extras.averages.command",
    "mt_cli.extras.tuning.command",
    "mt_cli.cli.translate",
    "mt_cli.cli.evaluate",
    "mt_cli.extras.inspection.command",
    "mt_cli.cli.tokenize",
    "mt_cli.extras.exchange.command",
)
"""Modules with a function `add(app)`, in the order of `mt --help`."""

HOOKS = {
    # name: (module, the option that asks for it)
    "adopt": ("mt_cli.extras.fine_tuning.parent", "init.run"),
    "attention_pictures": ("mt_cli.extras.inspection.training_pictures", "training.num_pictures"),
    "augmented": ("mt_cli.extras.augmentation.pairs", "training.concatenated_pairs or training.inserted_words"),
    "average_at_end": ("mt_cli.extras.averages.averages", "training.average_checkpoints"),
    "Circumstances": ("mt_cli.extras.recipes.auto", "preset: auto"),
    "comet_score": ("mt_cli.extras.comet", "--comet"),
    "config_of_folder": ("mt_cli.extras.recipes.new_config", "a folder without --config"),
    "first_misaligned_line": ("mt_cli.extras.data_check.slips", "files of different lengths"),
    "GETTEXT": ("mt_cli.extras.localisation.gettext", "a .po file"),
    "inherited": ("mt_cli.extras.fine_tuning.parent", "init.run"),
    "known_problems": ("mt_cli.extras.data_check.known", "the search for problems in corpora"),
    "load_comet": ("mt_cli.extras.comet", "--comet"),
    "load_served": ("mt_cli.extras.exchange.ctranslate2", "--engine ctranslate2"),
    "refuse_processed": ("mt_cli.extras.data_check.known", "the search for problems in corpora"),
    "replayed_before": ("mt_cli.extras.fine_tuning.replay", "init.replay"),
    "resegmented": ("mt_cli.extras.subword_sampling.pairs", "tokenizer.bpe_dropout or tokenizer.unigram_alpha"),
    "resolve_preset": ("mt_cli.extras.recipes.auto", "preset: auto"),
    "save_attention": ("mt_cli.extras.inspection.figures", "--attention"),
    "ShardedState": ("mt_cli.extras.sharding.sharded_state", "training.shard_model"),
    "skeleton": ("mt_cli.extras.sharding.fsdp", "training.shard_model"),
    "TMX": ("mt_cli.extras.localisation.tmx", "a .tmx file"),
    "tune_at_end": ("mt_cli.extras.tuning.at_end", "training.tune_decoding"),
    "unsupported": ("mt_cli.extras.exchange.huggingface", "mt export --format huggingface"),
    "with_replay": ("mt_cli.extras.fine_tuning.replay", "init.replay"),
}

FORMATS = {".tmx": "TMX", ".po": "GETTEXT"}
"""The corpus formats of extras, by suffix: hooks that are a `Format`."""

ENGINES = {"ctranslate2": "load_served"}
"""The engines of extras, by their name for `--engine`: hooks that load a `Translator`."""


def commands() -> Iterator[Callable[[typer.Typer], None]]:
    """The functions that add commands to the command line; those of missing extras are left out."""
    for module in COMMANDS:
        if _exists(module):
            yield import_module(module).add


def has(name: str) -> bool:
    """Whether the extra of a hook is there."""
    return _exists(HOOKS[name][0])


def require(name: str) -> None:
    """Raise InputError, with the names of the option and of the extra, if the extra of a hook is missing."""
    module, option = HOOKS[name]
    if not _exists(module):
        raise InputError(f"{option}: needs {'.'.join(module.split('.')[:3])}, which this installation lacks")


def require_for(config: Config, num_processes: int) -> None:
    """Raise InputError if a run of a config needs an extra that is missing, now and not after hours."""
    needed = {
        "adopt": config.init.run is not None,
        "augmented": config.training.is_augmented,
        "average_at_end": config.training.average_checkpoints is not None,
        "resegmented": config.tokenizer.is_sampled,
        "resolve_preset": config.preset is not None,
        "ShardedState": config.training.is_sharded(num_processes),
        "tune_at_end": config.training.tune_decoding,
        "with_replay": config.init.replay is not None,
    }
    for name, is_needed in needed.items():
        if is_needed:
            require(name)


def __getattr__(name: str) -> Any:
    if name not in HOOKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require(name)
    return getattr(import_module(HOOKS[name][0]), name)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # Its package is missing.
        return False
