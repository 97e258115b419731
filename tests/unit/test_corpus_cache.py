import os
import time

import pytest

from mt_cli.corpus.cache import cached, digest_of_file, fingerprint, format_bytes, size_of
from mt_cli.errors import CorpusError, MtError


def test_what_is_there_is_not_made_again(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "content").write_text("x", encoding="utf-8")

    first, second = cached(tmp_path / "cache", "a", make), cached(tmp_path / "cache", "a", make)
    assert first == second == tmp_path / "cache" / "a"
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a"]


def test_what_fails_leaves_nothing_and_what_was_there_stays(tmp_path):
    cached(tmp_path / "cache", "a", lambda folder: (folder / "content").touch())

    def fail(folder):
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path / "cache", "b", fail)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a"]


def test_of_two_processes_the_first_wins_and_both_go_on(tmp_path):
    def make(folder):
        (tmp_path / "cache" / "a").mkdir()
        (tmp_path / "cache" / "a" / "theirs").touch()
        (folder / "ours").touch()

    folder = cached(tmp_path / "cache", "a", make)
    assert [path.name for path in folder.iterdir()] == ["theirs"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a"]


def test_what_a_killed_process_left_is_removed_when_it_is_old(tmp_path):
    for name, age in (("old.unfinished-x", 2 * 86_400), ("new.unfinished-y", 10)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    cached(tmp_path, "a", lambda folder: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "new.unfinished-y"]


def test_a_cache_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MtError, match="cannot be written"):
        cached(tmp_path / "file", "a", lambda folder: None)


def test_fingerprints_tell_values_apart_and_not_their_order():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert len({fingerprint(value) for value in (1, "1", [1], None, {"1": None})}) == 5


def test_a_digest_is_of_the_content_alone(tmp_path):
    for name, content in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    digests = [digest_of_file(tmp_path / name) for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    assert size_of([tmp_path]) == 3
    with pytest.raises(CorpusError, match="none: no such file"):
        digest_of_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1_300, "1.3 kB"), (2.5e12, "2.5 TB")]
)
def test_sizes_are_for_people(number, text):
    assert format_bytes(number) == text
