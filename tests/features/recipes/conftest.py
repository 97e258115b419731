"""Fixtures of the tests of `mt init`."""

import pytest

from mt_cli.config.loading import load_config


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
