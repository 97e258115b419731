import os
import time

import pytest

from mt_cli.corpus.cache import Cache


@pytest.fixture
def said():
    return []


@pytest.fixture
def cache(tmp_path, said):
    return Cache(tmp_path / "cache", said.append)


def write_content(folder):
    (folder / "content").write_bytes(b"some content")
    (folder / "empty").touch()


def read_content(folder):
    assert (folder / "empty").read_bytes() == b""
    return (folder / "content").read_bytes()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_entries_are_made_once_and_failures_leave_nothing(cache, said):
    made = []

    def make(folder):
        made.append(folder)
        write_content(folder)

    def fail(folder):
        (folder / "half").touch()
        raise KeyboardInterrupt

    assert [cache.entry("a", make, read_content) for _ in range(2)] == [b"some content"] * 2
    with pytest.raises(KeyboardInterrupt):
        cache.entry("b", fail, read_content)
    assert len(made) == 1 and not said and names_in(cache.path) == ["a"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"[" * 100_000),
    ],
    ids=["halved", "removed", "nested"],
)
def test_a_damaged_entry_is_reported_and_rebuilt(cache, said, damage):
    for number, name in enumerate(("content", "contents.json"), start=1):
        cache.entry("a", write_content, read_content)
        damage(cache.path / "a" / name)
        for _ in range(2):
            again = Cache(cache.path, said.append)  # Another command.
            assert again.entry("a", write_content, read_content) == b"some content"
        assert len(said) == number
        assert names_in(cache.path) == ["a"]


def test_old_folders_of_killed_processes_are_removed(cache):
    for name, age in (("old.unfinished-x", 2 * 86_400), ("new.unfinished-y", 10)):
        (cache.path / name).mkdir(parents=True)
        os.utime(cache.path / name, (time.time() - age,) * 2)
    cache.entry("a", write_content, read_content)
    assert names_in(cache.path) == ["a", "new.unfinished-y"]
