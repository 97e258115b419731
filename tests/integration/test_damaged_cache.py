"""The cache below `runs/.cache` may be damaged or removed at any time: the run is the same."""

import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.features.data_check.problems import find_problems
from mt_cli.machine.console import say

DAMAGES = {
    "halved": lambda path: os.truncate(path, path.stat().st_size // 2),
    "removed": lambda path: path.unlink(),
    "zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "flipped": lambda path: path.write_bytes(bytes([*path.read_bytes()[:-9], 7, *path.read_bytes()[-8:]])),
}


def weights_of(run):
    return load_file(run / "checkpoints" / "last.safetensors")


def same_weights(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours if not name.startswith("random")
    )


def content_of(data):
    """All texts, ids and statuses."""
    return [
        (
            name,
            list(corpus.rows()),
            data.statuses(name).tolist(),
            [[ids.tolist() for ids in data.encoded[name][index]] for index in range(len(data.encoded[name]))],
        )
        for name, corpus in data.corpora.items()
    ]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_of_the_cache_changes_nothing(quick_tree, corpus, tmp_path, monkeypatch, damage, capsys):
    monkeypatch.chdir(tmp_path)
    for side in ("en", "xx"):
        lines = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / f"train.{side}").write_text("".join(lines[:50]), encoding="utf-8")
    quick_tree["corpus"] |= {"train": {"files": ["train.en", "train.xx"]}, "valid": {"fraction": 0.1}}
    config = parse_config(quick_tree, "test")

    def content():
        data, cache = prepare(config, Cache(tmp_path / ".cache", say)), Cache(tmp_path / ".cache", say)
        return content_of(data), find_problems(data.corpora, config, cache)

    expected = content()
    files = sorted(path for path in (tmp_path / ".cache").rglob("*") if path.is_file())
    names = {path.name for path in files}
    assert {"train.arrow", "train.npy", "train.json", "tokenizer.source.json", "problems.json"} <= names
    for path in files:
        damage(path)
        capsys.readouterr()
        assert content() == expected, path
        said = capsys.readouterr().err
        assert said.count("it is rebuilt") == 1 and path.parent.name in said


def test_a_run_outlives_its_cache(mt, quick_tree, tiny_config, tmp_path):
    from mt_cli.run.validation import Validator

    options = ("training.max_steps=5", "training.validate_every_steps=2")
    command = ("train", "--config", tiny_config, *(part for option in options for part in ("--set", option)), "--set")
    assert mt(*command, "name=whole")[0] == 0
    validate, cache = Validator.validate, tmp_path / "runs" / ".cache"

    def remove_first(validator, *model):
        shutil.rmtree(cache) if cache.is_dir() else cache.unlink(missing_ok=True)
        return validate(validator, *model)

    def replace_first(validator, *model):  # As another program may.
        shutil.rmtree(cache, ignore_errors=True)
        cache.touch()
        return validate(validator, *model)

    for name, act in (("removed", remove_first), ("replaced", replace_first)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Validator, "validate", act)
            status, _, err = mt(*command, f"name={name}")
        assert status == 0, err
        assert same_weights(weights_of(tmp_path / "runs" / name), weights_of(tmp_path / "runs" / "whole"))
