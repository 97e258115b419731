"""Exports to `transformers`: the same probabilities and texts there and after an import, and a card for the hub."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from huggingface_hub import ModelCard

from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import MtError
from mt_cli.evaluation.results import Report, RunSummary
from mt_cli.exchange.card import model_card
from mt_cli.exchange.huggingface import export_huggingface
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

SENTENCES = ["one two.", "three four five.", "ten."]
TIED = {"tie_embeddings": "all", "activation": "gelu", "qkv_bias": False, "output_bias": True}
POST = {"norm_order": "post", "tie_embeddings": "none"}
COUNTS = dict.fromkeys(("best_step", "num_steps", "num_target_tokens", "num_parameters"), 1)


@pytest.fixture
def shared_run(trained, with_random_model):
    """A function that makes a run with one tokenizer and a random model with these options."""
    run = TrainedRun.load(trained)
    return partial(with_random_model, replace(run, tokenizers=(run.tokenizers[1], run.tokenizers[1])))


@pytest.mark.parametrize(
    "options",
    [TIED, {"norm_order": "post", "tie_embeddings": "target", "num_decoder_layers": 1}, POST | {"d_model": 16}],
)
def test_every_model_that_a_class_holds_gives_the_same_probabilities(shared_run, tmp_path, transformers, options):
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


def test_an_export_that_disagrees_is_removed(shared_run, tmp_path, transformers):
    run = shared_run({"tie_embeddings": "all"})
    run.model.encoder_norm.eps = 1.0  # Not an option, so that no format holds it.
    with pytest.raises(MtError, match="disagrees"):
        export_huggingface(run, tmp_path / "model", SENTENCES, "card")
    assert not list(tmp_path.glob("model*"))


def test_the_hub_reads_languages_and_scores_of_a_card(trained):
    score = {"score": 41.236, "signature": "nrefs:1|case:mixed"}
    names = {"test": 'news "two": no', "test_web": "web"}
    report = Report.model_validate(
        {
            **{"split": "test", "bleu": score, "chrf++": score, "stopped_because": "limit", **COUNTS},
            "extra_tests": {"test_web": {"split": "test_web", "ter": score}},
            "corpora": [{"corpus": key, "name": name} for key, name in names.items()],
        }
    )
    targets = {"<no>spa_Latn>": "spa_Latn", "<2formal>": "quy_Latn", ">>zho_Hant<<": "zh-Hant"}
    parts = [{"files": ["a.1", "a.2"], "languages": ("no", target), "tag": tag} for tag, target in targets.items()]
    config = TrainedRun.load(trained).config
    corpus = {"source": "no", "target": "spa_Latn", "train": parts, "valid": parts}
    config = config.model_copy(update={"corpus": type(config.corpus).model_validate(corpus)})
    card = model_card(RunSummary("null", config, [], [], report), "cc-by-4.0")
    data = ModelCard(card).data
    values = (data.language, data.license, data.pipeline_tag, data.model_name)
    assert values == (["es", "no", "quy", "zh"], "cc-by-4.0", "translation", "null")
    results = [(row.dataset_name, row.dataset_split, row.metric_name, row.metric_value) for row in data.eval_results]
    news = names["test"], "test"
    assert results == [(*news, "BLEU", 41.24), (*news, "chrF++", 41.24), ("web", "test_web", "TER", 41.24)]
    for without in (None, report.model_copy(update={"scores": {}, "extra_tests": {}})):
        assert ModelCard(model_card(RunSummary("run", config, [], [], without), None)).data.eval_results is None


def test_transformers_divides_log_probabilities_as_the_run_does(shared_run, tmp_path, transformers):
    run = shared_run({"tie_embeddings": "all", "norm_order": "post", "output_bias": True})
    with torch.no_grad():
        run.model.projection.bias[EOS_ID] += 5  # A random model may never end a translation.
    decoding = DecodingConfig(beam_size=3, length_penalty=1.5, max_length_ratio=0.1)
    run = replace(run, config=run.config.model_copy(update={"decoding": decoding}))
    export_huggingface(run, tmp_path / "model", SENTENCES, "card")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    for ids in run.tokenizers[0].encode(SENTENCES):
        source = torch.tensor([[*ids, EOS_ID]])
        output = model.generate(source, max_length=20, return_dict_in_generate=True, output_scores=True)
        target = [index for index in output.sequences[0].tolist()[1:] if index not in (EOS_ID, PAD_ID)]
        (reading,) = TransformerEngine(run.model).force_decode([(ids, target)])
        assert len(target) < 19  # It has an end.
        ours = sum(reading.log_probs) / (len(target) + 1) ** 1.5
        assert float(output.sequences_scores[0]) == pytest.approx(ours, rel=1e-4)


SPELLED = {"normalize": ("joined_apostrophes", "apostrophes"), "letters": {"ã": "â", "o": "e"}}
BEAMS = {"beam_size": 3, "length_penalty": 0.6, "unk": "avoid", "no_repeat_ngram": 2}


@pytest.mark.parametrize(
    ("options", "tokenizer", "decoding"),
    [
        (TIED, {"algorithm": "bpe"} | SPELLED, BEAMS),
        pytest.param(POST, {"algorithm": "bpe", "spacing": "sentencepiece"}, {}, marks=pytest.mark.slow),
        pytest.param(POST | {"activation": "silu"}, {"algorithm": "unigram"}, {}, marks=pytest.mark.slow),
    ],
)
def test_an_exported_run_that_is_imported_again_is_the_same(
    trained, corpus, with_random_model, export, run_of, tmp_path, options, tokenizer, decoding
):
    run, learnt, tags = (
        TrainedRun.load(trained),
        TokenizerConfig(**tokenizer, vocab_size=300, shared=True),
        ("<a>", "<b>"),
    )
    lines = [line for side in ("en", "xx") for line in (corpus / f"train.{side}").read_text("utf-8").splitlines()]
    pieces = train_tokenizer(lines, learnt, tags)
    run = with_random_model(replace(run, tokenizers=(pieces, pieces)), options)
    tagged = [run.config.corpus.train[0].model_copy(update={"tag": tag, "name": tag}) for tag in tags]
    changes = {
        "corpus": run.config.corpus.model_copy(update={"train": tuple(tagged), "max_tokens": 20}),
        "tokenizer": learnt,
        "decoding": DecodingConfig(**decoding),
    }
    write_run(tmp_path / "runs/one", run.config.model_copy(update=changes), (pieces, pieces), run.model, 20)
    export("runs/one", "huggingface", "model")
    one, two = TrainedRun.load(tmp_path / "runs/one"), run_of("model", "again")
    assert pieces.to_json() == two.tokenizers[0].to_json() == two.tokenizers[1].to_json()
    assert one.config.tokenizer == two.config.tokenizer
    assert (one.config.decoding, one.max_tokens) == (two.config.decoding, two.max_tokens)
    assert one.config.corpus.languages == two.config.corpus.languages
    assert one.config.corpus.tags == two.config.corpus.tags
    weights = two.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in one.model.state_dict().items())
