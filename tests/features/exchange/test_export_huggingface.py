import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from huggingface_hub import ModelCard

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import InputError, MtError
from mt_cli.features.exchange.bundle import export_bundle
from mt_cli.features.exchange.card import model_card
from mt_cli.features.exchange.huggingface import export_huggingface
from mt_cli.reporting.report import Report, RunSummary
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SENTENCES = ["one two.", "three four five.", "ten."]


@pytest.fixture
def shared_run(trained, with_random_model):
    """A function that makes a run with one tokenizer and a random model with these options."""
    run = TrainedRun.load(trained)
    return partial(with_random_model, replace(run, tokenizers=(run.tokenizers[1], run.tokenizers[1])))


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
    run, folder = shared_run(options), tmp_path / "model"
    agreement = export_huggingface(run, folder, SENTENCES, "card")
    assert agreement.difference < 1e-4
    assert agreement.num_equal == agreement.num_sentences == 3
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    outputs = model.generate(**{key: batch[key] for key in ("input_ids", "attention_mask")}, num_beams=1, max_length=20)
    assert len(tokenizer.batch_decode(outputs, skip_special_tokens=True)) == 3
    kind = "marian" if "norm_order" in options else "pegasus"
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] == kind
    assert (folder / "README.md").read_text(encoding="utf-8") == "card"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"activation": "swiglu", "tie_embeddings": "all"}, ["model.activation: swiglu"]),
        ({"positions": "learned", "tie_embeddings": "all"}, ["model.positions: learned"]),
        ({"norm_order": "post", "final_norm": True}, ["model.final_norm"]),
        ({"tie_embeddings": "target"}, ["model.tie_embeddings: target"]),
        ({"activation": "swiglu", "positions": "learned"}, ["activation: swiglu", "positions: learned", "tie_embedd"]),
    ],
)
def test_a_model_that_no_class_can_hold_is_refused_by_all_its_names(shared_run, tmp_path, options, names):
    with pytest.raises(InputError) as caught:
        export_huggingface(shared_run(options), tmp_path / "model", SENTENCES, "card")
    assert all(name in str(caught.value) for name in names)
    assert not (tmp_path / "model").exists()


def test_a_bundle_with_two_tokenizers_for_one_vocabulary_is_refused(shared_run, mt, tmp_path):
    export_bundle(shared_run({"tie_embeddings": "all"}), tmp_path / "bundle")
    path = tmp_path / "bundle/tokenizer.target.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    words = [word for word in tree["model"]["vocab"] if not word.startswith("[")]
    tree["model"]["vocab"] |= dict(zip(words, reversed([tree["model"]["vocab"][word] for word in words]), strict=True))
    path.write_text(json.dumps(tree))
    status, _, err = mt("import", "bundle", "--output", "runs/again")
    assert status == 2 and "bundle: tokenizer.shared" in err


def test_an_export_that_disagrees_is_removed(shared_run, tmp_path):
    run = shared_run({"tie_embeddings": "all"})
    run.model.encoder_norm.eps = 1.0  # Not an option, so that no format holds it.
    with pytest.raises(MtError, match="disagrees"):
        export_huggingface(run, tmp_path / "model", SENTENCES, "card")
    assert not list(tmp_path.glob("model*"))


COUNTS = dict.fromkeys(("best_step", "num_steps", "num_target_tokens", "num_parameters"), 1)


def test_the_hub_reads_the_languages_and_all_scores_of_a_card(trained):
    score = {"score": 41.236, "signature": "nrefs:1"}
    names = {"test": 'news "two": no', "test_web": "web"}
    report = Report.model_validate(
        {
            **{"split": "test", "bleu": score, "chrf++": score, "stopped_because": "limit", **COUNTS},
            "extra_tests": {"test_web": {"split": "test_web", "ter": score}},
            "corpora": [{"corpus": key, "name": name} for key, name in names.items()],
        }
    )
    config = TrainedRun.load(trained).config
    config = config.model_copy(update={"corpus": config.corpus.model_copy(update={"source": "no", "target": "en"})})
    card = model_card(RunSummary("null", config, [], [], report), "cc-by-4.0")
    assert "| BLEU | 41.24 |" in card and "| TER (lower is better) | 41.24 |" in card
    data = ModelCard(card).data
    values = (data.language, data.license, data.pipeline_tag, data.model_name)
    assert values == (["en", "no"], "cc-by-4.0", "translation", "null")
    results = [(row.dataset_name, row.dataset_split, row.metric_name, row.metric_value) for row in data.eval_results]
    news = names["test"], "test"
    assert results == [(*news, "BLEU", 41.24), (*news, "chrF++", 41.24), ("web", "test_web", "TER", 41.24)]
    for without in (None, report.model_copy(update={"scores": {}, "extra_tests": {}})):
        assert ModelCard(model_card(RunSummary("run", config, [], [], without), None)).data.eval_results is None


def test_the_card_says_what_transformers_divides_log_probabilities_by(shared_run, tmp_path):
    run = shared_run({"tie_embeddings": "all", "norm_order": "post", "output_bias": True})
    with torch.no_grad():
        run.model.projection.bias[EOS_ID] += 5  # A random model may never end a translation.
    decoding = DecodingConfig(beam_size=3, length_penalty=1.5, max_length=9, min_length=1)
    run = replace(run, config=run.config.model_copy(update={"decoding": decoding}))
    card = model_card(RunSummary("run", run.config, [], [], None), None)
    for part in ("beams, 3,", "Length penalty, 1.5", "n^penalty in", "at most 9;", "512 tokens", "`min_length: 1`"):
        assert part in card
    export_huggingface(run, tmp_path / "model", SENTENCES, card)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    for ids in run.tokenizers[0].encode(SENTENCES):
        source = torch.tensor([[*ids, EOS_ID]])
        output = model.generate(source, max_length=20, return_dict_in_generate=True, output_scores=True)
        target = [index for index in output.sequences[0].tolist()[1:] if index not in (EOS_ID, PAD_ID)]
        (reading,) = TransformerEngine(run.model).force_decode([(ids, target)])
        assert len(target) < 19  # It has an end.
        ours = sum(reading.log_probs) / (len(target) + 1) ** 1.5
        assert float(output.sequences_scores[0]) == pytest.approx(ours, rel=1e-4)


def test_an_export_with_a_tokenizer_of_mt_is_refused_with_another_format(shared_run, mt, tmp_path):
    export_huggingface(
        shared_run({"norm_order": "post", "tie_embeddings": "all"}), tmp_path / "a-en-xx", SENTENCES, "card"
    )
    status, _, err = mt("import", "a-en-xx", "--output", "runs/again")
    assert status == 2 and "mt export --format bundle" in err
