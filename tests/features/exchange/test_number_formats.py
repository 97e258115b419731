"""Number formats in which CTranslate2 computes an export, on a CPU and on a GPU that is not there."""

from types import SimpleNamespace

import pytest

from mt_cli.decoding.ctranslate2 import load_translator


class FakeLibrary:
    """CTranslate2 on a machine whose translators run on one device; records what is loaded."""

    def __init__(self, device, file_format, supported=("float32", "float16", "int8", "int8_float16", "bfloat16")):
        self.device, self.file_format, self.supported = device, file_format, supported
        self.loaded, self.num_held = [], 0

    def Translator(self, path, device, **options):
        self.loaded.append((path, device, options))
        self.num_held += 1
        assert self.num_held == 1, "two copies of the weights are in memory"
        compute_type = options.get("compute_type", self.file_format)
        return SimpleNamespace(device=self.device, compute_type=compute_type, unload_model=self.unload)

    def unload(self):
        self.num_held -= 1

    def get_supported_compute_types(self, device, index):
        assert (device, index) == ("cuda", 1)
        return set(self.supported)


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [
        ("float32", "float16"),
        *((kind, "int8_float16") for kind in ("int8_float32", "int8")),
        *((kind, kind) for kind in ("float16", "bfloat16", "int8_float16")),
    ],
)
def test_a_gpu_computes_with_floats_of_16_bits_if_it_can(file_format, expected):
    library = FakeLibrary("cuda", file_format)
    assert load_translator(library, b"served", "cuda:1", 3).compute_type == expected
    assert {(*call, options["device_index"]) for *call, options in library.loaded} == {(b"served", "cuda", 1)}
    assert len(library.loaded) == 1 + (file_format != expected)
    slow = FakeLibrary("cuda", "float32", supported=("float32", "int8"))
    assert load_translator(slow, b"served", "cuda:1", 3).compute_type == "float32"


@pytest.mark.parametrize(("device", "file_format"), [("cpu", "float32"), ("auto", "int8")])
def test_a_cpu_computes_in_the_numbers_of_the_file(device, file_format):
    library = FakeLibrary("cpu", file_format)
    assert load_translator(library, b"served", device, 3).compute_type == file_format
    assert library.loaded == [(b"served", device, {"device_index": 0, "intra_threads": 3})]
