import json
from dataclasses import replace

import pytest
import torch

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import InputError, MtError
from mt_cli.export import huggingface
from mt_cli.export.huggingface import export_huggingface
from mt_cli.model.transformer import Transformer
from mt_cli.report.card import model_card
from mt_cli.report.reading import RunFiles
from mt_cli.tokenizer import EOS_ID, PAD_ID

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SENTENCES = ["one two.", "three four five.", "ten."]


def with_random_model(run, options):
    torch.manual_seed(1)
    config = ModelConfig(**{"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2} | options)
    model = Transformer(config, *(tokenizer.vocab_size for tokenizer in run.tokenizers))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2) if weight.dim() > 1 else torch.nn.init.normal_(weight, 0.5)
    tokenizer = run.config.tokenizer.model_copy(update={"shared": True})
    return replace(run, model=model, config=run.config.model_copy(update={"model": config, "tokenizer": tokenizer}))


@pytest.fixture
def shared_run(trained):
    run = TrainedRun.load(trained)
    return replace(run, tokenizers=(run.tokenizers[1], run.tokenizers[1]))


@pytest.mark.parametrize(
    "options",
    [
        {"tie_embeddings": "all"},
        {"tie_embeddings": "all", "activation": "gelu", "qkv_bias": False, "output_bias": True},
        {"norm_order": "post", "tie_embeddings": "all", "activation": "silu", "output_bias": True},
        {"norm_order": "post", "tie_embeddings": "target", "num_decoder_layers": 1},
        {"norm_order": "post", "tie_embeddings": "none", "d_model": 16},
    ],
)
def test_every_model_that_a_class_can_hold_gives_the_same_probabilities(shared_run, tmp_path, options):
    agreement = export_huggingface(with_random_model(shared_run, options), tmp_path / "model", SENTENCES, "card")
    assert agreement.difference < 1e-4
    assert agreement.num_equal == agreement.num_sentences == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"activation": "swiglu", "tie_embeddings": "all"}, "activation: swiglu"),
        ({"positions": "learned", "tie_embeddings": "all"}, "positions: learned"),
        ({"norm_order": "post", "final_norm": True}, "final_norm"),
        ({"tie_embeddings": "target"}, "tie_embeddings: target"),
    ],
)
def test_a_model_that_no_class_can_hold_is_refused_by_name(shared_run, tmp_path, options, named):
    with pytest.raises(InputError, match=named):
        export_huggingface(with_random_model(shared_run, options), tmp_path / "model", SENTENCES, "card")
    assert not (tmp_path / "model").exists()


def test_an_export_that_disagrees_is_removed(shared_run, tmp_path, monkeypatch):
    weights = huggingface._weights
    monkeypatch.setattr(huggingface, "_weights", lambda *each: {n: w * 1.1 for n, w in weights(*each).items()})
    with pytest.raises(MtError, match="disagrees"):
        export_huggingface(
            with_random_model(shared_run, {"tie_embeddings": "all"}), tmp_path / "model", SENTENCES, "card"
        )
    assert not list(tmp_path.glob("model*"))


def test_transformers_translates_with_an_exported_run(shared_run, tmp_path):
    run = with_random_model(shared_run, {"tie_embeddings": "all", "norm_order": "post"})
    export_huggingface(run, tmp_path / "model", SENTENCES, "card")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    outputs = model.generate(**{key: batch[key] for key in ("input_ids", "attention_mask")}, num_beams=1, max_length=20)
    assert len(tokenizer.batch_decode(outputs, skip_special_tokens=True)) == 3
    assert json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))["model_type"] == "marian"
    assert (tmp_path / "model/README.md").read_text(encoding="utf-8") == "card"


def test_the_card_says_what_transformers_divides_log_probabilities_by(shared_run, tmp_path):
    run = with_random_model(shared_run, {"tie_embeddings": "all", "norm_order": "post", "output_bias": True})
    with torch.no_grad():
        run.model.projection.bias[EOS_ID] += 5  # A random model may never end a translation.
    decoding = DecodingConfig(beam_size=3, length_penalty=1.5, max_length=9, no_repeat_ngram=2)
    run = replace(run, config=run.config.model_copy(update={"decoding": decoding}))
    card = model_card(RunFiles("run", run.config, [], [], None), None)
    for part in ("3, and to the same end", "Length penalty, 1.5 for both", "and by n^penalty in", "and at most 9;"):
        assert part in card
    assert "`generate` at 512 tokens" in card and "`no_repeat_ngram: 2`" in card and "min_length" not in card
    export_huggingface(run, tmp_path / "model", SENTENCES, card)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    for ids in run.tokenizers[0].encode(SENTENCES):
        source = torch.tensor([[*ids, EOS_ID]])
        found = model.generate(source, max_length=20, return_dict_in_generate=True, output_scores=True)
        target = [index for index in found.sequences[0].tolist()[1:] if index not in (EOS_ID, PAD_ID)]
        (reading,) = TransformerEngine(run.model).read([(ids, target)])
        assert len(target) < 19  # It has an end.
        ours = sum(reading.log_probs) / (len(target) + 1) ** 1.5
        assert float(found.sequences_scores[0]) == pytest.approx(ours, rel=1e-4)
