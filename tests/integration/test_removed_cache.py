"""The cache below `runs/.cache` may be removed at any time: the run is the same."""

import shutil

from run_content import assert_equal_tensors, tensors_of


def test_a_run_outlives_its_cache(mt, quick_tree, tiny_config, tmp_path, monkeypatch):
    from mt_cli.run.validation import Validator

    options = ("training.max_steps=5", "training.validate_every_steps=2")
    command = ("train", "--config", tiny_config, *(part for option in options for part in ("--set", option)), "--set")
    assert mt(*command, "name=whole")[0] == 0
    validate, cache = Validator.validate, tmp_path / "runs" / ".cache"

    def replace_first(validator, *model):
        """Remove the cache; a file is in its place later, as of another program."""
        if cache.is_dir():
            shutil.rmtree(cache)
        else:
            cache.touch()
        return validate(validator, *model)

    monkeypatch.setattr(Validator, "validate", replace_first)
    status, _, err = mt(*command, "name=replaced")
    assert status == 0 and cache.is_file(), err
    assert_equal_tensors(*(tensors_of(tmp_path / "runs" / name, "last") for name in ("replaced", "whole")))
