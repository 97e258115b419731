"""Licences of published models, as their model cards name them."""

from __future__ import annotations

import re
from pathlib import Path

from mt_cli.runtime.files import read_regular, reading

_MAX_CARD_BYTES = 2**22
_METADATA = re.compile(r"\A\ufeff?---\s*\n(.*?)\n---", re.DOTALL)
_LICENCE = re.compile(r"^(license|license_name):[ \t]*(?:-[ \t]*)?[\"']?([\w.+-]{1,60})", re.MULTILINE)


def licence_of(folder: Path) -> str | None:
    """Licence in the metadata of README.md, such as `cc-by-nc-4.0`; None if the folder has no such file or key.

    Raises InputError if the file cannot be read.
    """
    path = folder / "README.md"
    if not path.exists():
        return None
    with reading(path):
        text = read_regular(path, _MAX_CARD_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    metadata = _METADATA.match(text)
    keys = dict(_LICENCE.findall(metadata[1])) if metadata else {}
    licence = keys.get("license")
    return keys.get("license_name", licence) if licence == "other" else licence
