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
    content = (folder / "content").read_bytes()
    if not content:
        raise ValueError("damaged")
    return content


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


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_a_damaged_entry_is_reported_and_rebuilt(cache, said, damage):
    cache.entry("a", write_content, read_content)
    damage(cache.path / "a" / "content")
    for _ in range(2):
        again = Cache(cache.path, said.append)  # Another command.
        assert again.entry("a", write_content, read_content) == b"some content"
    assert len(said) == 1 and names_in(cache.path) == ["a"]
