"""Exports to `transformers`: the same probabilities and texts there and after an import, and a card for the hub."""

import json
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from huggingface_hub import ModelCard

from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import InputError, MtError
from mt_cli.features.exchange.card import model_card
from mt_cli.features.exchange.huggingface import export_huggingface
from mt_cli.reporting.report import Report, RunSummary
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID
from mt_cli.tokenizer.training import train_tokenizer

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


def test_a_model_that_no_class_holds_is_refused_by_all_its_names(shared_run, tmp_path):
    for options, names in (
        ({"norm_order": "post", "final_norm": True}, ["model.final_norm"]),
        ({"activation": "swiglu", "positions": "rotary"}, ["activation: swiglu", "positions: rotary", "tie_embedd"]),
    ):
        with pytest.raises(InputError) as caught:
            export_huggingface(shared_run(options), tmp_path / "model", SENTENCES, "card")
        assert all(name in str(caught.value) for name in names)
        assert not (tmp_path / "model").exists()


def test_an_export_that_disagrees_is_removed(shared_run, tmp_path, transformers):
    run = shared_run({"tie_embeddings": "all"})
    run.model.encoder_norm.eps = 1.0  # Not an option, so that no format holds it.
    with pytest.raises(MtError, match="disagrees"):
        export_huggingface(run, tmp_path / "model", SENTENCES, "card")
    assert not list(tmp_path.glob("model*"))


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


def test_a_card_has_whole_signatures_and_the_languages_of_the_hub(trained):
    signature = "nrefs:1|case:mixed"
    scores = {"split": "test", "bleu": {"score": 1, "signature": signature}, "stopped_because": "limit", **COUNTS}
    report = Report.model_validate(scores | {"corpora": [{"corpus": "test", "name": "a|b"}]})
    config = TrainedRun.load(trained).config
    directions = {"<spa_Latn>ayr_Latn>": "ayr_Latn", "<2formal>": "quy_Latn", ">>zho_Hant<<": "zh-Hant"}
    parts = [
        {"files": ["a.1", "a.2"], "languages": ("spa_Latn", target), "tag": tag} for tag, target in directions.items()
    ]
    tree = {"source": "spa_Latn", "target": "ayr_Latn", "train": parts, "valid": parts}
    corpus = type(config.corpus).model_validate(tree)
    card = model_card(RunSummary("run", config.model_copy(update={"corpus": corpus}), [], [], report), "mit")
    assert ModelCard(card).data.language == ["ayr", "es", "quy", "zh"]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in card.split("\n") if line.startswith("|")]
    cells = [cell.strip().replace("\\|", "|") for row in rows for cell in row]
    assert "a|b" in cells and f"`{signature}`" in cells


def test_the_card_says_what_transformers_divides_log_probabilities_by(shared_run, tmp_path, transformers):
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


SPELLED = {"normalize": ("nfc", "joined_apostrophes", "apostrophes"), "letters": {"ã": "â", "o": "e"}}
BEAMS = {"beam_size": 3, "length_penalty": 0.6, "unk": "avoid", "no_repeat_ngram": 2}


@pytest.mark.parametrize(
    ("options", "tokenizer", "decoding"),
    [
        (TIED, {"algorithm": "bpe", "vocab_size": 300} | SPELLED, BEAMS),
        *(
            pytest.param(POST | {"activation": "silu"}, tokenizer, {"beam_size": 1}, marks=pytest.mark.slow)
            for tokenizer in (
                {"algorithm": "bpe", "vocab_size": 300, "spacing": "sentencepiece"},
                {"algorithm": "unigram", "vocab_size": 300},
                {"algorithm": "char"},
            )
        ),
    ],
)
def test_an_exported_run_that_is_imported_again_translates_the_same(
    trained, corpus, with_random_model, export, run_of, mt, tmp_path, options, tokenizer, decoding
):
    run, learnt, tags = TrainedRun.load(trained), TokenizerConfig(**tokenizer, shared=True), ("<a>", "<b>")
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
    assert one.config.tokenizer.model_copy(update={"vocab_size": None}) == two.config.tokenizer
    assert (one.config.decoding, one.max_tokens) == (two.config.decoding, two.max_tokens)
    assert one.config.corpus.languages == two.config.corpus.languages
    assert one.config.corpus.tags == two.config.corpus.tags
    sentences = ["two.", "Ünknown wörds, one.", "one two three four five six seven. " * 3]
    texts = []
    for name in ("one", "again"):
        status, out, _ = mt("translate", "--run", f"runs/{name}", "--json", "--tag", "<b>", *sentences)
        texts.append([json.loads(line)["translation"] for line in out.splitlines()])
        assert status == 0 and len(texts[-1]) == len(sentences)
    assert texts[0] == texts[1]
