"""Repositories of a hub in memory: commits, branches, tags, and what the hub's API says about them as JSON.

Field names are those that the client reads: `DatasetInfo`, `ModelInfo`, `RepoSibling` and `RepoFile` in
`huggingface_hub/hf_api.py`. Knows nothing of HTTP.
"""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import yaml

_DATE = "2026-01-01T00:00:00.000Z"
_LFS_SIZE = 10_000_000
"""Larger files are stored as LFS files, as binary ones are."""


@dataclass(frozen=True)
class Blob:
    """A version of a file."""

    content: bytes

    @cached_property
    def is_lfs(self):
        """Whether the content is stored outside git, as that of binary and of large files is."""
        return b"\0" in self.content[:8000] or len(self.content) > _LFS_SIZE

    @cached_property
    def sha256(self):
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self):
        """What git stores for an LFS file."""
        lines = ["version https://git-lfs.github.com/spec/v1", f"oid sha256:{self.sha256}", f"size {len(self.content)}"]
        return "".join(line + "\n" for line in lines).encode()

    @cached_property
    def oid(self):
        """The name of the object in git."""
        stored = self.pointer if self.is_lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self):
        """The name of the file in the client's cache: SHA-256 of LFS files, the object's name of others."""
        return self.sha256 if self.is_lfs else self.oid

    def lfs_info(self, name):
        """The LFS fields of a listing, which calls the SHA-256 by another name than the information does."""
        if not self.is_lfs:
            return {}
        return {"lfs": {name: self.sha256, "size": len(self.content), "pointerSize": len(self.pointer)}}


@dataclass(frozen=True)
class Commit:
    oid: str
    files: dict[str, Blob]


@dataclass
class Repository:
    kind: str
    """`datasets` or `models`."""
    id: str
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    readers: set[str] = field(default_factory=set)
    """Tokens with access, if the repository is private or gated."""

    def commit(self, files, revision="main"):
        """Add a commit to a branch, which begins at `main` if it is new; returns its name, of 40 hexadecimal digits.

        `files` maps paths to their content; None removes a path. Others are kept.
        """
        parent = self.find(revision) or self.find("main")
        blobs = dict(parent.files) if parent else {}
        blobs |= {path: Blob(content) for path, content in files.items() if content is not None}
        blobs = {path: blobs[path] for path in sorted(blobs) if files.get(path, b"") is not None}
        text = repr([parent.oid if parent else "", [(path, blob.oid) for path, blob in blobs.items()]])
        oid = hashlib.sha1(text.encode()).hexdigest()
        self.commits[oid] = Commit(oid, blobs)
        self.branches[revision] = oid
        return oid

    def find(self, revision):
        """The commit of a branch, tag or name of a commit, or None."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        return self.commits.get(oid)

    def info(self, commit, with_blobs=False):
        card = card_data(commit.files.get("README.md"))
        siblings = [
            {"rfilename": path}
            | ({"size": len(blob.content), "blobId": blob.oid, **blob.lfs_info("sha256")} if with_blobs else {})
            for path, blob in commit.files.items()
        ]
        languages = [card["language"]] if isinstance(card.get("language"), str) else card.get("language") or []
        return {
            "_id": hashlib.sha1(self.id.encode()).hexdigest()[:24],
            "id": self.id,
            **({"modelId": self.id, "pipeline_tag": "translation"} if self.kind == "models" else {}),
            "author": self.id.split("/")[0],
            "sha": commit.oid,
            "createdAt": _DATE,
            "lastModified": _DATE,
            "private": self.private,
            "gated": "auto" if self.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [f"language:{code}" if self.kind == "datasets" else code for code in languages],
            "cardData": card,
            "siblings": siblings,
        }

    def tree(self, commit, folder, is_recursive):
        """Files and folders below a folder; None if it has none."""
        prefix = folder + "/" if folder else ""
        inside = [path for path in commit.files if path.startswith(prefix)]
        if not inside and folder:
            return None
        parents = {str(parent) for path in inside for parent in PurePosixPath(path).parents} - {"."}
        names = sorted([*inside, *(parent for parent in parents if parent.startswith(prefix))])
        return [self._entry(commit, name) for name in names if is_recursive or "/" not in name.removeprefix(prefix)]

    def _entry(self, commit, path):
        blob = commit.files.get(path)
        if blob is None:
            return {"type": "directory", "oid": hashlib.sha1(path.encode()).hexdigest(), "size": 0, "path": path}
        size = len(blob.content)
        return {"type": "file", "oid": blob.oid, "size": size, **blob.lfs_info("oid"), "path": path}


def card_data(readme):
    """The metadata of a card: the YAML between the first two lines of three dashes."""
    text = readme.content.decode() if readme else ""
    found = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    return (yaml.safe_load(found[1]) if found else None) or {}


def files_of(folder):
    """The content of the files of a folder, by path."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
