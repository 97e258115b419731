"""Hostile weights and tokenizers: each reader refuses them with one message that names the file."""

import json

import pytest
from hostile_files import Program

from mt_cli.config.sections import TokenizerConfig
from mt_cli.errors import InputError, RunError

HOSTILE_WEIGHTS = {  # A value that is saved as a pickle or, if it can be, as safetensors; or the content of a file.
    "a program": lambda torch: {"a": Program()},
    "no tensors": lambda torch: [torch.ones(2)],
    "whole numbers": lambda torch: {"a": torch.ones(2, dtype=torch.int64)},
    "a huge view of one number": lambda torch: {"a": torch.ones(()).expand(2**30)},
    "a tensor without numbers": lambda torch: {"a": torch.empty(10**6, 10**6, device="meta")},
    "a huge header": (2**40).to_bytes(8, "little") + b"{}",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE_WEIGHTS)
def test_hostile_weights_are_refused_by_every_reader(tmp_path, monkeypatch, name):
    import torch

    from mt_cli.exchange.weights import read_shard

    monkeypatch.chdir(tmp_path)
    path, content = tmp_path / "weights", HOSTILE_WEIGHTS[name]
    for is_zip in (True, False):
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(
            content(torch), path, _use_new_zipfile_serialization=is_zip
        )
        for is_pickled in (True, False):
            with pytest.raises(InputError) as caught:
                read_shard(path, is_pickled)
            assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_weights_are_read_as_they_were_saved(tmp_path, dtype):
    import torch
    from safetensors.torch import save_file

    from mt_cli.exchange.weights import read_shard

    expected = torch.arange(12.0).view(3, 4)  # All formats hold these numbers exactly.
    weight = expected.to(getattr(torch, dtype))
    save_file({"a": weight}, tmp_path / "safetensors")
    torch.save({"a": weight}, tmp_path / "zip")
    torch.save({"a": torch.nn.Parameter(weight)}, tmp_path / "older", _use_new_zipfile_serialization=False)
    for name in ("safetensors", "zip", "older"):
        weights = read_shard(tmp_path / name, name != "safetensors")
        assert torch.equal(weights.pop("a"), expected) and not weights


def edited(value, *path):
    """A function that changes a value of a tokenizer file."""

    def change(content):
        tree = part = json.loads(content)
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        return json.dumps(tree).encode()

    return change


HOSTILE_TOKENIZERS = {
    "deep JSON": ("char", lambda content: b"[" * 3000),
    "bytes": ("char", lambda content: b"\xff"),
    "no special tokens": ("char", edited({"a": 0}, "model", "vocab")),
    "a merge without entries": ("bpe", edited(["so", "so"], "model", "merges", 0)),
    "an entry without a score": ("unigram", edited(["x"], "model", "vocab", 4)),
}


@pytest.mark.parametrize("name", HOSTILE_TOKENIZERS)
def test_a_damaged_tokenizer_is_refused_by_name(tmp_path, name):
    from mt_cli.tokenizer.tokenizer import Tokenizer
    from mt_cli.tokenizer.training import train_tokenizer

    algorithm, change = HOSTILE_TOKENIZERS[name]
    config = TokenizerConfig(algorithm=algorithm, vocab_size=None if algorithm == "char" else 300)
    content = train_tokenizer(["some words and some other words", "others and more"], config).to_json()
    path = tmp_path / "tokenizer.json"
    assert Tokenizer.parse(content.encode(), path, config).to_json() == content
    with pytest.raises(RunError) as caught:
        Tokenizer.parse(change(content), path, config)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
