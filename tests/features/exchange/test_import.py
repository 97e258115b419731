"""Marian models as runs: they give the ids and logits of `transformers`, can be extended, and are exported again."""

import json
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from marian_files import LINES, entries_of, write_marian, write_two_vocabularies

from mt_cli.checkpoint.trained import TrainedRun
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

    folder = published(request.param, partial(write_marian, **MODELS[request.param]))
    path = imported(request.param, folder, ("en", "de"))
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


def test_an_imported_run_has_no_corpora_to_evaluate(mt, imported_marian):
    status, _, err = mt("evaluate", "--run", imported_marian)
    assert status == 2 and "its corpora are not known" in err


@pytest.mark.parametrize("model", ["marian", "bpe"], indirect=True)
def test_imported_tokenizers_split_text_as_sentencepiece_does(model):
    for tokenizer, side in zip(model.run.tokenizers, model.sides, strict=True):
        names = {*entries_of(model.folder)} | {side.id_to_piece(index) for index in range(side.vocab_size())}
        for line in LINES:
            expected = side.encode(line, out_type=str)
            assert tokenizer.pieces(line) == [piece if piece in names else "[UNK]" for piece in expected], line
            assert tokenizer.encode_flat([line])[0].tolist() == tokenizer.encode([line])[0]
        lines = [line for line in LINES if "[UNK]" not in tokenizer.tokens(tokenizer.encode([line])[0])]
        assert tokenizer.decode(tokenizer.encode(lines)) == [side.decode(side.encode(line)) for line in lines]


@pytest.mark.parametrize("kind", ["unigram", pytest.param("bpe", marks=pytest.mark.slow)])
def test_a_piece_of_the_other_side_has_its_id_in_transformers(published, run_of, transformers, kind):
    lines = [*LINES, *["(§ ♪ §) ♪"] * 9]
    folder = published(f"other-{kind}", partial(write_marian, kind=kind, target_lines=lines))
    theirs, ours = transformers.MarianTokenizer.from_pretrained(folder), run_of(folder).tokenizers[0]
    entries = entries_of(folder)  # Two pieces have none.
    for piece in filter(entries.__contains__, "(§♪)"):
        for text in (piece, f"a {piece} b", f"{piece}{piece}", f"{piece}☃"):
            assert ours.encode([text]) == [in_ours(folder, theirs(text)["input_ids"][:-1])], text


@pytest.mark.parametrize(("kind", "tags"), [("bpe", (">>deu<<",)), pytest.param("unigram", (), marks=pytest.mark.slow)])
def test_the_vocabulary_of_an_imported_model_is_extended(
    published, imported, mt, export, tiny_tree, tmp_path, kind, tags
):
    import sentencepiece

    name = f"extended-{kind}"
    parent = imported(name, published(name, partial(write_marian, kind=kind, tags=tags)), ("en", "de"))
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in LINES[:80]), encoding="utf-8")
    (tmp_path / "train.zh").write_text("".join(f"{line}\n" for line in CHINESE), encoding="utf-8")
    tiny_tree["name"], tiny_tree["init"] = "child", {"run": str(parent), "vocabulary": "extend"}
    tiny_tree["corpus"] = {
        **{"source": "en", "target": "zh", "valid": {"fraction": 0.1}, "max_tokens": 100},
        "train": {"files": ["train.en", "train.zh"]} | ({"tag": ">>zho<<", "name": "zho"} if tags else {}),
        "filters": {"duplicates": False, "overlap": False},
    }
    tiny_tree["training"] |= {"max_steps": 2, "batch_tokens": 1000, "validate_every_steps": 2}
    tiny_tree["decoding"] = {"beam_size": 1, "max_length": 12}
    del tiny_tree["model"]
    (tmp_path / "child.yaml").write_text(json.dumps(tiny_tree))
    status, _, err = mt("train", "--config", "child.yaml")
    assert status == 0, err
    old, new = TrainedRun.load(parent).tokenizers, TrainedRun.load(tmp_path / "runs/child").tokenizers
    assert any(1 in ids for ids in old[1].encode(CHINESE)) and not any(1 in ids for ids in new[1].encode(CHINESE))
    assert new[1].decode(new[1].encode(CHINESE)) == CHINESE
    for before, after in zip(old, new, strict=True):
        assert after.encode(LINES) == before.encode(LINES)
    assert new[0].vocab_size == new[1].vocab_size
    assert not tags or len(new[0].encode([">>zho<<"])[0]) == 1
    export("runs/child", "huggingface", "back")
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert f"weights of {name} (`en` to `de`)" in card
    exported = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "back/target.spm"))
    pieces = [new[1].pieces(line) for line in CHINESE[:4]]
    assert [exported.encode(line, out_type=str) for line in CHINESE[:4]] == pieces
    assert set(entries_of(tmp_path / "back")).issuperset(piece for line in pieces for piece in line)


@pytest.mark.parametrize("model", ["marian", pytest.param("bpe", marks=pytest.mark.slow)], indirect=True)
def test_import_and_export_are_inverse(model, run_of, export, tmp_path, transformers):
    export(model.path, "huggingface", "back-en-de")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained("back-en-de").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("back-en-de")
    old, new, pad = entries_of(model.folder), entries_of(tmp_path / "back-en-de"), model.original.config.pad_token_id
    columns = [[entries[name] for name in old if name != "<pad>"] for entries in (new, old)]
    for line in LINES[::15]:
        ids = torch.tensor([[*(old.get(piece, 1) for piece in model.sides[0].encode(line, out_type=str)), 0]])
        with torch.inference_mode():
            expected = model.original(ids, decoder_input_ids=torch.tensor([[pad]])).logits
            logits = back(torch.tensor([tokenizer(line)["input_ids"]]), decoder_input_ids=torch.tensor([[2]])).logits
        torch.testing.assert_close(logits[..., columns[0]], expected[..., columns[1]], atol=1e-4, rtol=1e-4)
    again = run_of("back-en-de", "again")
    assert (again.config.decoding, again.max_tokens) == (model.run.config.decoding, model.run.max_tokens)
    assert_equal_runs(again, model.run)


@pytest.mark.parametrize("is_source_larger", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_each_of_two_vocabularies_has_its_own_padding(published, run_of, export, transformers, is_source_larger):
    lines = {"source_lines": LINES, "target_lines": LINES[:40]}
    if not is_source_larger:
        lines = dict(zip(lines, reversed(lines.values()), strict=True))
    folder = published(f"two-{is_source_larger}", partial(write_two_vocabularies, **lines))
    original = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    source, target = (entries_of(folder, name) for name in ("vocab.json", "target_vocab.json"))
    pad = original.config.pad_token_id
    assert (len(source) > len(target)) == is_source_larger
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
    if is_source_larger:
        export("runs/opus", "huggingface", "back-en-de")
        assert_equal_runs(run_of("back-en-de", "again"), run)


def test_a_bundle_becomes_a_run_again(mt, run_of, export, trained, bundle, imported_marian):
    one, two = TrainedRun.load(trained), run_of(bundle, "again")
    assert_equal_runs(one, two)
    assert (one.config.model, one.config.decoding) == (two.config.model, two.config.decoding)
    expected = mt("translate", "--run", trained, "one two three.")
    assert mt("translate", "--run", "runs/again", "one two three.")[1] == expected[1]
    export(imported_marian, "bundle", "bundle-of-marian")
    assert_equal_runs(TrainedRun.load(imported_marian), run_of("bundle-of-marian", "marian-again"))
