"""Fixtures of the tests of `mt init`."""

import pytest

from mt_cli.config.loading import load_config
from mt_cli.corpus.source_rows import read_rows


@pytest.fixture
def init(mt, tmp_path):
    """A function that runs `mt init`, and returns its messages and the section `corpus`, or None after an error."""

    def run(*arguments):
        path = tmp_path / "new.yaml"
        path.unlink(missing_ok=True)
        status, _, err = mt("init", *arguments, "--output", path, "--name", "new")
        assert status == (0 if path.exists() else 2), err
        return err, load_config(path).corpus if path.exists() else None

    return run


@pytest.fixture
def pairs_of():
    """A function that reads the pairs of a group of a corpus, in its languages."""
    return lambda corpus, role="train": [row[1:] for row in read_rows(getattr(corpus, role)[0], corpus.languages)]
