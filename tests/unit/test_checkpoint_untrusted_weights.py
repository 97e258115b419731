import zipfile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mt_cli.checkpoint import files
from mt_cli.checkpoint.files import open_checkpoint, save_checkpoint
from mt_cli.checkpoint.untrusted_weights import check_finite, check_size, read_pickle, read_safetensors
from mt_cli.errors import DamagedFileError, InputError

WEIGHTS = {"a": torch.arange(12.0).view(3, 4), "b": torch.tensor([1.5])}
"""Numbers that all formats hold exactly."""


def save_pickle(weights, path, is_zip=True):
    torch.save(weights, path, _use_new_zipfile_serialization=is_zip)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_are_read_as_they_were_saved(tmp_path, kind):
    given = {name: weight.to(kind) for name, weight in WEIGHTS.items()}
    save_file(given, tmp_path / "x.safetensors")
    found = [read_safetensors(tmp_path / "x.safetensors")]
    for name, is_zip in (("zip.bin", True), ("old.bin", False)):
        save_pickle({key: nn.Parameter(weight) for key, weight in given.items()}, tmp_path / name, is_zip)
        found.append(read_pickle(tmp_path / name))
    for weights in found:
        assert weights.keys() == WEIGHTS.keys()
        assert not any(weight.requires_grad for weight in weights.values())
        assert all(torch.equal(weights[name], weight) for name, weight in WEIGHTS.items())


@pytest.mark.parametrize("kind", [torch.complex64, torch.int64, torch.int8, torch.bool, torch.float8_e4m3fn])
def test_weights_that_are_no_floating_point_numbers_are_refused(tmp_path, kind):
    path = tmp_path / "weights"
    given = WEIGHTS | {"b": WEIGHTS["b"].to(kind)}
    for save, read in ((save_file, read_safetensors), (save_pickle, read_pickle)):
        if save is save_pickle or not kind.is_complex:  # Older versions of safetensors do not write complex numbers.
            save(given, path)
            with pytest.raises(InputError, match=r"weights: cannot be read: b has values of type torch\."):
                read(path)


@pytest.mark.parametrize("kind", ["C64", "I32"])
def test_a_checkpoint_with_complex_or_whole_numbers_is_refused(tmp_path, kind):
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, nn.Linear(2, 2), {})
    shape = "[2,1]" if kind == "C64" else "[2,2]"
    old, new = b'"dtype":"F32","shape":[2,2]', f'"dtype":"{kind}","shape":{shape}'.encode()
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    files._write_checksum(str(path))
    with pytest.raises(DamagedFileError, match="damaged checkpoint: "), open_checkpoint(path) as saved:
        saved.load_weights_into(nn.Linear(2, 2))


ODD = [
    *(3, [torch.ones(2)], {1: torch.ones(2)}, {None: torch.ones(2)}, {"a": 3}, {"a": {"b": torch.ones(2)}}),
    *({"a": torch.ones(9).expand(10**6, 9)}, {"a": torch.ones(()).expand(2**30)}, {"a": torch.eye(3).to_sparse()}),
    *({"a": torch.empty(10**6, 10**6, device="meta")}, {"a": bytearray(9)}, torch.Size([1])),
]


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("number", range(len(ODD)))
def test_a_pickle_with_other_values_than_plain_tensors_is_refused(tmp_path, number, is_zip):
    path = tmp_path / "x.bin"
    save_pickle(ODD[number], path, is_zip)
    with pytest.raises(InputError, match=r"x\.bin: (cannot be read: it (holds|declares)|is damaged, or holds more)"):
        read_pickle(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04", b"\x80\x02.", b"\xff" * 99, b"x" * 8 + b"{}"])
def test_what_is_no_file_of_weights_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    for read in (read_safetensors, read_pickle):
        with pytest.raises(InputError, match=r"x: (cannot be read|is damaged)"):
            read(tmp_path / "x")
        with pytest.raises(InputError, match="nothing: cannot be read: no such file"):
            read(tmp_path / "nothing")


def test_a_compressed_pickle_is_refused(tmp_path):
    save_pickle({"a": torch.zeros(10**6)}, tmp_path / "x.bin")
    with zipfile.ZipFile(tmp_path / "x.bin") as archive:
        members = {each.filename: archive.read(each) for each in archive.infolist()}
    with zipfile.ZipFile(tmp_path / "x.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match="it is compressed"):
        read_pickle(tmp_path / "x.bin")


def test_weights_that_are_not_finite_and_a_model_that_is_far_larger_than_its_file_are_refused():
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="b has values that are not finite"):
            check_finite(WEIGHTS | {"b": torch.tensor([value])})
    with torch.device("meta"):
        small, large = nn.Linear(4, 3), nn.Linear(10**6, 10**6)
    check_size(small, WEIGHTS)
    with pytest.raises(ValueError, match="has 1,000,001,000,000 weights, and the file 13"):
        check_size(large, WEIGHTS)
