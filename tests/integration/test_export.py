import json
import shutil

import pytest
import torch

from mt_cli.config.sections import ModelConfig
from mt_cli.export import compare, export_ctranslate2
from mt_cli.model.transformer import Transformer
from mt_cli.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

SENTENCES = ["one two.", "three four five.", "ten."]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_order": "post", "activation": "gelu"},
        {"activation": "swiglu", "qkv_bias": False, "tie_embeddings": "none"},
        {"positions": "learned", "max_positions": 40, "num_decoder_layers": 1},
    ],
)
def test_every_kind_of_model_gives_the_same_probabilities_there(trained, tmp_path, options):
    translator = Translator.load(trained, "cpu", "fp32")
    torch.manual_seed(1)
    sizes = translator.source_tokenizer.vocab_size, translator.target_tokenizer.vocab_size
    config = ModelConfig(**{"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2} | options)
    other = translator.config.model_copy(update={"model": config})
    model = Transformer(config, *sizes).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2) if weight.dim() > 1 else torch.nn.init.normal_(weight, 0.5)
    theirs = Translator(model, (translator.source_tokenizer, translator.target_tokenizer), other)
    agreement = export_ctranslate2(theirs, tmp_path / "model", "float32", SENTENCES)
    assert agreement.difference < 1e-4
    assert agreement.num_sentences == 3


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_a_trained_run_is_exported_and_translates_the_same(mt, trained, tmp_path, quantization):
    command = ("export", "--run", trained, "--format", "ctranslate2", "--output", "served")
    status, out, err = mt(*command, "--quantization", quantization)
    assert (status, out) == (0, "")
    assert "of 5 sentences" in err and "served" in err
    engine = ctranslate2.Translator(str(tmp_path / "served"), device="cpu")
    translator = Translator.load(trained, "cpu", "fp32")
    tokens = [translator.source_tokenizer.tokens(ids) for ids in translator.source_tokenizer.encode(SENTENCES)]
    results = engine.translate_batch(tokens, beam_size=2)
    assert " ".join(results[0].hypotheses[0]).startswith("ONE TWO")
    assert mt(*command)[0] == 2


def test_an_export_that_disagrees_is_refused(trained, tmp_path, monkeypatch):
    from mt_cli.errors import MtError

    translator = Translator.load(trained, "cpu", "fp32")
    monkeypatch.setattr(translator, "log_probs", lambda source, target: [-9.0] * (len(target) + 1))
    with pytest.raises(MtError, match="disagrees with ours"):
        export_ctranslate2(translator, tmp_path / "model", "float32", SENTENCES)
    assert not (tmp_path / "model").exists()


def test_nothing_of_our_model_changes(trained, tmp_path):
    translator = Translator.load(trained, "cpu", "fp32")
    before = [weight.clone() for weight in translator.model.parameters()]
    export_ctranslate2(translator, tmp_path / "model", "int8", SENTENCES)
    assert all(torch.equal(*pair) for pair in zip(before, translator.model.parameters(), strict=True))
    assert compare(translator, tmp_path / "model", SENTENCES).num_sentences == 3


def test_a_bundle_holds_all_that_another_program_needs(mt, trained, tmp_path):
    assert mt("export", "--run", trained, "--format", "bundle", "--output", "bundle")[0] == 0
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert names == {"model.safetensors", "model.json", "tokenizer.source.json", "tokenizer.target.json"}
    description = json.loads((tmp_path / "bundle/model.json").read_text(encoding="utf-8"))
    assert description["model"]["d_model"] == 32
    assert description["special_tokens"] == {"[PAD]": 0, "[UNK]": 1, "[SOS]": 2, "[EOS]": 3}
    shutil.rmtree(tmp_path / "bundle")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "onnx"), "use ctranslate2 or bundle"),
        (("--format", "ctranslate2", "--quantization", "int4"), "use one of float32"),
        (("--format", "bundle", "--quantization", "int8"), "--quantization is for --format ctranslate2"),
    ],
)
def test_bad_options_are_named(mt, trained, options, words):
    status, _, err = mt("export", "--run", trained, "--output", "out", *options)
    assert status == 2
    assert words in err
