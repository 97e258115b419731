"""Fixtures of the tests that train: small runs, trained once."""

import hashlib
import shutil

import pytest


@pytest.fixture
def quick_tree(tiny_tree, tmp_path):
    """The tiny config with 11 steps an epoch, and only a few sentences to validate and test."""
    for side, lines in (("en", "one.\ntwo six.\nten.\n"), ("xx", "ONE.\nTWO SIX.\nTEN.\n")):
        (tmp_path / f"test.{side}").write_text(lines, encoding="utf-8")
    tiny_tree["corpus"] |= {"valid": {"fraction": 0.02}, "test": {"files": ["test.en", "test.xx"]}}
    tiny_tree["training"]["batch_tokens"] = 220
    return tiny_tree


@pytest.fixture(scope="session")
def kept_runs(tmp_path_factory):
    """A folder with runs of the tests of this process, by what they were trained with."""
    return tmp_path_factory.mktemp("kept_runs")


@pytest.fixture
def begin(train, kept_runs, tmp_path):
    """Trains as `train` of a test file does, but once for all its tests, which get a copy of the run; returns its path.

    `tiny.yaml` and what a test gives are all that the run may depend on.
    """

    def run(name, *arguments, **training):
        config = (tmp_path / "tiny.yaml").read_text(encoding="utf-8")
        kept = kept_runs / hashlib.sha256(repr((config, name, arguments, training)).encode("utf-8")).hexdigest()
        if not kept.exists():
            status, _, err = train(name, *arguments, **training)
            assert status == 0, err
            shutil.copytree(tmp_path / "runs" / name, kept)
        else:
            shutil.copytree(kept, tmp_path / "runs" / name)
        return tmp_path / "runs" / name

    return run
