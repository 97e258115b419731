"""Hostile content of files, for the tests of readers of untrusted files."""

import os
import pickle
import shutil

KINDS = ("link to a file", "link to a folder", "dangling link", "link to a device", "pipe", "folder", "pickle")


class Program:
    """A value that runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch was_run",)


def plant(path, kind, outside):
    """Replace a file by something else; links lead to the folder `outside`, which has a file and a folder."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    targets = {"link to a file": outside / "file", "link to a folder": outside / "folder"}
    targets |= {"dangling link": outside / "nothing", "link to a device": "/dev/zero"}
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(Program()))
    else:
        path.mkdir()


def make_outside(folder):
    """Make a folder that no command may change; return it."""
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_bytes(b"kept\n" * 3)
    (folder / "folder" / "test.txt").write_bytes(b"kept too\n")
    return folder


def content_of(folder):
    return {path.relative_to(folder): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


def rewrite_checkpoint(path, change):
    """Write a checkpoint again after `change(tensors, metadata)`."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    change(tensors, metadata)
    save_file(tensors, path, metadata)
