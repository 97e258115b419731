"""The cache below `runs/.cache` may be damaged or removed at any time: the run is the same."""

import shutil

from run_content import assert_equal_tensors, tensors_of


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


def test_a_damaged_file_of_the_cache_changes_nothing(quick_tree, corpus, tmp_path, monkeypatch, capsys):
    from mt_cli.advice.problems import find_problems
    from mt_cli.config.loading import parse_config
    from mt_cli.corpus.cache import Cache
    from mt_cli.data.prepare import prepare
    from mt_cli.runtime.console import say

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
    times = [path.stat().st_mtime_ns for path in files]
    assert content() == expected and times == [path.stat().st_mtime_ns for path in files], "all is found again"
    for path in files:
        path.write_bytes(path.read_bytes()[:-1])
        capsys.readouterr()
        assert content() == expected, path
        err = capsys.readouterr().err
        assert err.count("it is rebuilt") == 1 and path.parent.name in err
    assert len(files) >= 5


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
