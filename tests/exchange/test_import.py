"""Marian models as runs: they give the ids and logits of `transformers`, can be extended, and are exported again."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from marian_files import LINES, entries_of, write_marian, write_two_vocabularies

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import parse_config
from mt_cli.config.tags import Tagging
from mt_cli.exchange.bundle import unknown_corpus
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

MODELS = {  # Each has another algorithm, activation, number of layers or tying of embeddings.
    "marian": {},
    "relu": {"activation_function": "relu", "encoder_layers": 6, "decoder_layers": 1},
    "bpe": {"kind": "bpe", "activation_function": "gelu", "tie_word_embeddings": False},
}
CHINESE = ["一个男人在睡觉。", "两只狗在看一个男人。", "一个女人在看书。", "狗在睡觉。"] * 20


@pytest.fixture(params=MODELS)
def model(request, published, imported, transformers):
    """A published model by `transformers` and `sentencepiece`, its files, and its run."""
    import sentencepiece

    folder, path = (
        make(request.param, partial(write_marian, **MODELS[request.param])) for make in (published, imported)
    )
    sides = [sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in SIDES]
    original = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return SimpleNamespace(folder=folder, path=path, run=TrainedRun.load(path), sides=sides, original=original)


SIDES = ("source", "target")


def assert_equal_runs(one, two):
    pairs = zip(one.tokenizers, two.tokenizers, strict=True)
    assert all(tokenizer.to_json() == other.to_json() for tokenizer, other in pairs)
    weights = two.model.state_dict()
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def in_ours(folder, ids, name="vocab.json"):
    """The ids of a run for those of Marian."""
    vocabulary = entries_of(folder, name)
    kept = sorted(index for entry, index in vocabulary.items() if entry not in ("</s>", "<unk>", "<pad>"))
    order = {index: 4 + number for number, index in enumerate(kept)}
    return [order.get(index, 1 if index == 1 else 3) for index in ids]


def test_an_imported_model_gives_the_logits_of_the_original(model):
    run, vocabulary, pad = model.run, entries_of(model.folder), model.original.config.pad_token_id
    columns = in_ours(model.folder, range(model.original.config.vocab_size - 1))
    added = 4 + len(vocabulary) - 3  # For the pieces without an entry.
    for line in [*LINES[:132:22], *LINES[132:]]:
        ids = [vocabulary.get(piece, 1) for piece in model.sides[0].encode(line, out_type=str)]
        ours = in_ours(model.folder, ids)
        assert [index if index < added else 1 for index in run.tokenizers[0].encode([line])[0]] == ours
        with torch.inference_mode():
            source, prefix = torch.tensor([[*ids, 0]]), torch.tensor([[pad, *ids[:7]]])
            expected = model.original(source, decoder_input_ids=prefix).logits
            logits = run.model.eval()(torch.tensor([[*ours, EOS_ID]]), torch.tensor([[SOS_ID, *ours[:7]]]))
        torch.testing.assert_close(logits[..., columns], expected[..., :-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["unigram", pytest.param("bpe", marks=pytest.mark.slow)])
def test_a_piece_of_the_other_side_keeps_its_id(published, run_of, transformers, kind):
    lines = [*LINES, *["(§ ♪ §) ♪"] * 9]
    folder = published(f"other-{kind}", partial(write_marian, kind=kind, target_lines=lines))
    theirs, ours = transformers.MarianTokenizer.from_pretrained(folder), run_of(folder).tokenizers[0]
    entries = entries_of(folder)  # Two pieces have none.
    for piece in filter(entries.__contains__, "(§♪)"):
        for text in (piece, f"a {piece} b", f"{piece}{piece}", f"{piece}☃"):
            assert ours.encode([text]) == [in_ours(folder, theirs(text)["input_ids"][:-1])], text


def test_the_vocabulary_of_an_imported_model_is_extended(imported, train_child, export, tmp_path):
    import sentencepiece

    parent = imported("tagged", partial(write_marian, kind="bpe", tags=(">>deu<<",)))
    texts, corpus = {"train.en": LINES[:80], "train.zh": CHINESE}, {"source": "en", "target": "zh"}
    corpus["train"] = {"files": [*texts], "tag": ">>zho<<", "name": "zho"}
    status, err = train_child(parent, texts, corpus, vocabulary="extend")
    assert status == 0, err
    old, new = TrainedRun.load(parent).tokenizers, TrainedRun.load(tmp_path / "runs/child").tokenizers
    assert any(1 in ids for ids in old[1].encode(CHINESE)) and not any(1 in ids for ids in new[1].encode(CHINESE))
    assert new[1].decode(new[1].encode(CHINESE)) == CHINESE
    for before, after in zip(old, new, strict=True):
        assert after.encode(LINES) == before.encode(LINES)
    assert new[0].vocab_size == new[1].vocab_size
    assert len(new[0].encode([">>zho<<"])[0]) == 1
    export("runs/child", "huggingface", "back")
    exported = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "back/target.spm"))
    pieces = [new[1].pieces(line) for line in CHINESE[:4]]
    assert [exported.encode(line, out_type=str) for line in CHINESE[:4]] == pieces
    assert set(entries_of(tmp_path / "back")).issuperset(piece for line in pieces for piece in line)


@pytest.mark.parametrize("model", ["marian", pytest.param("bpe", marks=pytest.mark.slow)], indirect=True)
def test_import_and_export_are_inverse(model, run_of, export, tmp_path, transformers):
    export(model.path, "huggingface", "back-en-de")
    tokenizer = transformers.AutoTokenizer.from_pretrained("back-en-de")
    old, new = entries_of(model.folder), entries_of(tmp_path / "back-en-de")
    for line in LINES[::15]:
        ids = [new.get(piece if piece in old else "<unk>") for piece in model.sides[0].encode(line, out_type=str)]
        assert tokenizer(line)["input_ids"] == [*ids, new["</s>"]]
    again = run_of("back-en-de", "again")
    assert (again.config.decoding, again.max_tokens) == (model.run.config.decoding, model.run.max_tokens)
    assert_equal_runs(again, model.run)


def test_each_of_two_vocabularies_has_its_own_padding(published, run_of, export, transformers):
    folder = published("two", write_two_vocabularies)
    original = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    source, target = (entries_of(folder, name) for name in ("vocab.json", "target_vocab.json"))
    pad = original.config.pad_token_id
    assert (pad, tokenizer.pad_token_id) == (target["<pad>"], source["<pad>"])
    run = run_of(folder)
    piece = next(name for name, index in source.items() if index == pad)  # Has the id of the padding of the target.
    texts = [*LINES[::9], f"one{piece.replace('▁', ' ')} two"]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    assert (batch["input_ids"] == pad).any()
    decoder = torch.tensor([[pad, *range(3, 9)]]).expand(len(texts), -1)
    original_columns = [index for index in range(len(target)) if index != pad]
    columns = in_ours(folder, original_columns, "target_vocab.json")
    tgt_ids = torch.tensor([[SOS_ID, *in_ours(folder, range(3, 9), "target_vocab.json")]])
    with torch.inference_mode():
        logits = original(batch["input_ids"], batch["attention_mask"], decoder).logits[..., original_columns]
        for text, expected in zip(texts, logits, strict=True):
            src_ids = torch.tensor([[*run.tokenizers[0].encode([text])[0], EOS_ID]])
            ours = run.model.eval()(src_ids, tgt_ids)[0, :, columns]
            torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    export("runs/opus", "huggingface", "back-en-de")
    assert_equal_runs(run_of("back-en-de", "again"), run)


def test_a_bundle_becomes_a_run_again(mt, run_of, export, trained, bundle, imported):
    one, two = TrainedRun.load(trained), run_of(bundle, "again")
    assert_equal_runs(one, two)
    assert (one.config.model, one.config.decoding) == (two.config.model, two.config.decoding)
    expected = mt("translate", "--run", trained, "one two three.")
    assert mt("translate", "--run", "runs/again", "one two three.")[1] == expected[1]
    export(imported("marian"), "bundle", "bundle-of-marian")
    assert_equal_runs(TrainedRun.load(imported("marian")), run_of("bundle-of-marian", "marian-again"))


def test_an_imported_model_keeps_the_languages_of_its_tags():
    tagging = Tagging(("<aa>", "<bb>"), "<aa>", True, {"<aa>": "it", "<bb>": "ru"})
    corpus = {"source": "en", "target": "it", **unknown_corpus(tagging, "en")}
    assert parse_config({"name": "a", "corpus": corpus}, "a").corpus.tagging == tagging
