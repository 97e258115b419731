import errno
import os
from pathlib import Path

import pytest

from mt_cli.errors import InputError, MtError
from mt_cli.runtime.files import (
    new_folder,
    read_model,
    reading,
    refusal,
    write_atomically,
    write_output,
    write_text,
    writing,
)


@pytest.mark.parametrize("content", [b'{"a": 1', b"[" * 10_000, b"\xff", b'{"b": "x"}', b'{"a": 1, "b": 222}', None])
def test_a_json_file_has_its_type_or_is_named(tmp_path, content):
    path = tmp_path / "Model.json"
    path.write_bytes(b'{"a": 1, "b": 2}')
    assert read_model(path, dict[str, int], 16) == {"a": 1, "b": 2}
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: "):
        read_model(path, dict[str, int], 16 if content is None or b"222" in content else 2**20)


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail_halfway(temporary):
        Path(temporary).write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(MtError):
        write_atomically(path, fail_halfway)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"], "no temporary file"


def test_an_output_is_written_through_links_and_into_pipes(tmp_path):
    (tmp_path / "link").symlink_to("file")
    write_output(tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"1"
    reader, writer = os.pipe()
    write_output(Path(f"/dev/fd/{writer}"), b"2")
    assert os.read(reader, 9) == b"2"


def test_errors_of_a_body_about_other_things_pass(tmp_path):
    """Only an error about the file itself, or a file below it, is a message."""
    path, missing = tmp_path / "file", FileNotFoundError(errno.ENOENT, "No such file", str(tmp_path / "other"))
    for use in (reading, writing):
        for error in (missing, "\ud800", TypeError()):
            with pytest.raises((FileNotFoundError, UnicodeEncodeError, TypeError)), use(path):
                raise error if isinstance(error, Exception) else error.encode()
        for error in (FileNotFoundError(errno.ENOENT, "", str(path)), OSError()):
            with pytest.raises(MtError), use(path):
                raise error
    with pytest.raises(FileNotFoundError):
        write_atomically(path, lambda temporary: (tmp_path / "other").read_bytes())
    assert not os.listdir(tmp_path)


def everything_in(folder):
    return sorted((str(path.relative_to(folder)), path.is_dir() or path.read_text()) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space"), OSError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (FileNotFoundError(errno.ENOENT, "No such file", "elsewhere"), FileNotFoundError),
    ],
)
def test_a_folder_that_fails_leaves_nothing_behind(tmp_path, error, expected):
    (tmp_path / "a").mkdir()
    with pytest.raises(expected), new_folder(tmp_path / "a" / "new") as folder:
        (folder / "file").write_text("1")
        raise error
    assert everything_in(tmp_path) == [("a", True)]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_another_process_makes_in_the_meantime_stays(tmp_path, make):
    path = tmp_path / "new"
    with pytest.raises(InputError), new_folder(path) as folder:
        (folder / "file").write_text("ours")
        make(path)
        (path / "file").write_text("theirs") if path.is_dir() else None
    assert os.listdir(tmp_path) == ["new"]
    assert not (path / "file").exists() or (path / "file").read_text() == "theirs"


@pytest.mark.parametrize("moment", ["never", "before", "in the meantime"])
def test_a_new_folder_appears_when_it_is_complete(tmp_path, moment):
    """An empty one may have its name."""
    path = tmp_path / "a" / "new"
    if moment == "before":
        path.mkdir(parents=True)
    with new_folder(path) as folder:
        (folder / "file").write_text("ours")
        if moment == "in the meantime":
            path.mkdir()
        assert not path.exists() or not os.listdir(path)
    assert everything_in(tmp_path) == [("a", True), ("a/new", True), ("a/new/file", "ours")]


def test_only_a_full_disk_is_a_failure_of_the_work():
    for status, numbers in {1: (errno.ENOSPC, errno.EROFS, errno.EIO), 2: (errno.ENOENT, errno.EACCES)}.items():
        for number in numbers:
            error = refusal(Path("out"), OSError(number, os.strerror(number), "out"), "; give another file")
            assert error.exit_code == status
            assert str(error).startswith("out: ") and str(error).endswith("; give another file")
