"""Number formats in which CTranslate2 computes an export, on a GPU that is not there."""

from types import SimpleNamespace

import pytest

from mt_cli.decoding.ctranslate2 import load_translator


class FakeLibrary:
    """CTranslate2 on a machine whose translators run on a GPU; counts the models in memory."""

    def __init__(self, file_format, supported=("float32", "float16", "int8", "int8_float16", "bfloat16")):
        self.file_format, self.supported, self.num_held = file_format, supported, 0

    def Translator(self, path, device, compute_type=None, **options):
        self.num_held += 1
        assert (path, device, options["device_index"], self.num_held) == (b"served", "cuda", 1, 1)
        return SimpleNamespace(device="cuda", compute_type=compute_type or self.file_format, unload_model=self.unload)

    def unload(self):
        self.num_held -= 1

    def get_supported_compute_types(self, device, index):
        return set(self.supported)


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [
        ("float32", "float16"),
        *((kind, "int8_float16") for kind in ("int8_float32", "int8")),
        *((kind, kind) for kind in ("float16", "bfloat16", "int8_float16")),
    ],
)
def test_a_gpu_computes_in_16_bits_if_it_can(file_format, expected):
    assert load_translator(FakeLibrary(file_format), b"served", "cuda:1", 3).compute_type == expected
    slow = FakeLibrary("float32", supported=("float32", "int8"))
    assert load_translator(slow, b"served", "cuda:1", 3).compute_type == "float32"
