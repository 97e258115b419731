import os
import shutil
import time

import pytest

from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.errors import CorpusError, MtError


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


def test_an_existing_entry_is_not_rebuilt_and_a_failed_one_leaves_nothing(cache, said):
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
        lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 4]) + path.read_bytes()[1:]),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), path.symlink_to("nowhere")),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.write_bytes(b'{"content": 3}'),
    ],
    ids=["halved", "removed", "flipped", "folder", "link", "pipe", "nested", "other"],
)
def test_a_damaged_entry_is_reported_and_rebuilt(cache, said, damage):
    for number, name in enumerate(("content", "contents.json"), start=1):
        cache.entry("a", write_content, read_content)
        damage(cache.path / "a" / name)
        for _ in range(2):
            again = Cache(cache.path, said.append)  # Another command.
            assert again.entry("a", write_content, read_content) == b"some content"
        assert len(said) == number and "content" in said[-1]
        assert names_in(cache.path) == ["a"]


@pytest.mark.parametrize(
    "put",
    [lambda path: path.touch(), lambda path: path.symlink_to("nowhere"), lambda path: path.mkdir()],
    ids=["file", "link", "empty"],
)
def test_anything_with_the_name_of_an_entry_is_replaced(cache, put):
    cache.path.mkdir()
    put(cache.path / "a")
    assert cache.entry("a", write_content, read_content) == b"some content"
    assert names_in(cache.path) == ["a"]


def test_an_entry_that_another_program_removes_is_an_error(cache):
    def load(folder):
        shutil.rmtree(folder)
        return read_content(folder)

    with pytest.raises(MtError, match="run the command again"):
        cache.entry("a", write_content, load)
    with pytest.raises(ZeroDivisionError):
        cache.entry("a", write_content, lambda folder: 1 / 0)


def test_old_folders_of_killed_processes_are_removed(cache):
    for name, age in (("old.unfinished-x", 2 * 86_400), ("new.unfinished-y", 10)):
        (cache.path / name).mkdir(parents=True)
        os.utime(cache.path / name, (time.time() - age,) * 2)
    cache.entry("a", write_content, read_content)
    assert names_in(cache.path) == ["a", "new.unfinished-y"]


def test_a_cache_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MtError, match="file"):
        Cache(tmp_path / "file").entry("a", write_content, read_content)


def test_fingerprints_and_digests_depend_on_the_content_alone(tmp_path):
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert len({fingerprint(value) for value in (1, "1", [1], None, {"1": None})}) == 5
    for name, content in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    digests = [digest_of_file(tmp_path / name) for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(CorpusError, match="none: "):
        digest_of_file(tmp_path / "none")
