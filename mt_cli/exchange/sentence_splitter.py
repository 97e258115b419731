"""Splitter of sentences as an ONNX network, for packages of Argos Translate.

Argos Translate splits text with a network of MiniSBD from the package, or downloads one, of English for most languages.
This network has no trained weights: its filters are the rules below, which hold for any language. As in
`translation/sentences.py`, two sentences that stay together do no harm, and a split inside one does.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

_CLASSES = {
    "end": ".!?…",
    "stop": ".",
    "closing": "\"'”’»)]",
    "space": " ",
    "end_before_space": "।॥؟۔።፧།",
    "end_without_space": "。！？។៕",
    "closing_without_space": "」』”’）",
}
_BY_CATEGORY = ("lower", "upper", "digit")
_NAMES = (*_CLASSES, *_BY_CATEGORY)
_FIRST, _LAST = -4, 2
"""First and last place that a filter sees, relative to the character that may end a sentence."""
_RULES: tuple[tuple[float, Mapping[int, str]], ...] = (
    # Value if each place has a character of one of its classes; a class after `-` must not be there.
    (2, {0: "end", 1: "space", 2: "-lower"}),
    (2, {-1: "end", 0: "closing", 1: "space", 2: "-lower"}),
    (2, {0: "end_before_space", 1: "space"}),
    (2, {0: "end_without_space", 1: "-end_without_space -closing_without_space"}),
    # Initials, short numbers and short abbreviations: `J.`, `No.`, `12.`, `Mrs.`
    (-4, {-2: "-lower -upper -digit", -1: "lower upper digit", 0: "stop"}),
    (-4, {-3: "-lower -upper -digit", -2: "upper digit", -1: "lower upper digit", 0: "stop"}),
    (-4, {-4: "-lower -upper -digit", -3: "upper", -2: "lower upper", -1: "lower upper", 0: "stop"}),
)
_NEVER = -9.0
_UNIT_FLOAT, _UNIT_INT64 = 1, 7
_SENTENCE_END, _NUM_LABELS = 2, 5
"""Label of the last character of a sentence, and the number of labels in MiniSBD; label 0 is any other character."""


def sentence_splitter() -> bytes:
    """Content of an ONNX file for MiniSBD: `units` (BxT) and `features` to scores of labels (BxTx5)."""
    characters = [*dict.fromkeys("".join(_CLASSES.values())), *filter(str.isalnum, map(chr, range(0x30, 0x590)))]
    units = ["<PAD>", "<UNK>", *dict.fromkeys(characters)]
    table = np.array([[name in _classes_of(unit) for name in _NAMES] for unit in units], dtype=np.float32)
    filters = np.zeros((len(_RULES), len(_NAMES), _LAST - _FIRST + 1), dtype=np.float32)
    thresholds = np.zeros(len(_RULES), dtype=np.float32)
    labels = np.zeros((_NUM_LABELS, len(_RULES), 1), dtype=np.float32)
    for row, (value, places) in enumerate(_RULES):
        for place, names in places.items():
            for name in names.split():
                weight = _NEVER if name.startswith("-") else 1.0
                filters[row, _NAMES.index(name.removeprefix("-")), place - _FIRST] = weight
            thresholds[row] -= not names.startswith("-")
        labels[_SENTENCE_END, row] = value
    bias = np.zeros(_NUM_LABELS, dtype=np.float32)
    bias[1:] = -1.0
    tensors = {"table": table, "filters": filters, "thresholds": thresholds + 1, "labels": labels, "bias": bias}
    graph = {
        1: [
            _node("Gather", ("table", "units"), "classes"),
            _node("Transpose", ("classes",), "columns", perm=(0, 2, 1)),
            _node("Conv", ("columns", "filters", "thresholds"), "sums", pads=(-_FIRST, _LAST)),
            _node("Relu", ("sums",), "rules"),
            _node("Conv", ("rules", "labels", "bias"), "label_columns"),
            _node("Transpose", ("label_columns",), "scores", perm=(0, 2, 1)),
        ],
        2: "sentences",
        5: [{1: [*x.shape], 2: _UNIT_FLOAT, 8: name, 9: x.tobytes()} for name, x in tensors.items()],
        11: [_value("units", _UNIT_INT64, 2), _value("features", _UNIT_FLOAT, 3)],
        12: _value("scores", _UNIT_FLOAT, 3),
    }
    numbers = {unit: number for number, unit in enumerate(units)}
    vocabulary = {"lang": "", "idx": 0, "cutoff": 0, "lower": False, "_unit2id": numbers, "_id2unit": units}
    metadata = {"lang_code": "", "config": {"feat_funcs": ["capitalized"], "max_seqlen": 1000}, "vocab": vocabulary}
    properties = [
        {1: key, 2: value if isinstance(value, str) else json.dumps(value)} for key, value in metadata.items()
    ]
    return _message({1: 8, 7: graph, 8: {2: 13}, 14: properties})


def _classes_of(unit: str) -> set[str]:
    """Classes of a character; MiniSBD's own units, which are longer, have none."""
    if len(unit) > 1:
        return set()
    category = {"Ll": "lower", "Lu": "upper", "Nd": "digit"}.get(unicodedata.category(unit), "")
    return {name for name, characters in _CLASSES.items() if unit in characters} | {category}


def _message(fields: Mapping[int, Any]) -> bytes:
    """Message of Protocol Buffers, in which ONNX files are written; a list repeats its field."""
    parts = []
    for number, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, int):
                parts += [_varint(number << 3), _varint(value)]
            else:
                value = _message(value) if isinstance(value, dict) else value
                content = value.encode("utf-8") if isinstance(value, str) else value
                parts += [_varint(number << 3 | 2), _varint(len(content)), content]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    """A number that is not negative, in groups of seven bits, the lowest first."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _node(operator: str, inputs: tuple[str, ...], output: str, **attributes: tuple[int, ...]) -> dict[int, Any]:
    lists = [{1: name, 8: [*values], 20: 7} for name, values in attributes.items()]
    return {1: [*inputs], 2: output, 4: operator, 5: lists}


def _value(name: str, kind: int, num_dimensions: int) -> dict[int, Any]:
    """Name, type and shape of an input or output; the sizes are free."""
    shape = [{2: f"{name}_{index}"} for index in range(num_dimensions)]
    return {1: name, 2: {1: {1: kind, 2: {1: shape}}}}
