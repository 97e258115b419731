import copy
import json
import shutil

import pytest
import torch
from marian_files import LINES, entries_of, write_marian, write_two_vocabularies

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture(scope="module")
def marian_models(one_thread, tmp_path_factory):
    """The models of `marian` that were made before, by their options."""
    return tmp_path_factory.mktemp("marian"), {}


@pytest.fixture
def marian(marian_models, tmp_path):
    """Writes a MarianMT model into a folder: (folder, model, SentencePiece models). Each is made once for all tests."""
    made, models = marian_models

    def write(*arguments, **options):
        key = repr((arguments, options))
        if key not in models:
            folder = made / str(len(models))
            folder.mkdir()
            models[key] = folder, *write_marian(folder, *arguments, **options)
        folder, model, tokenizers = models[key]
        shutil.copytree(folder, tmp_path / "opus-mt-en-de")
        return tmp_path / "opus-mt-en-de", copy.deepcopy(model), tokenizers

    return write


def assert_equal_runs(one, two):
    assert [tokenizer.to_json() for tokenizer in one.tokenizers] == [
        tokenizer.to_json() for tokenizer in two.tokenizers
    ]
    weights = two.model.state_dict()
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def their_ids(folder, model, text):
    """The ids of a source in Marian, by SentencePiece itself."""
    vocabulary = entries_of(folder)
    return [vocabulary.get(piece, 1) for piece in model.encode(text, out_type=str)]


def in_ours(folder, ids, name="vocab.json"):
    """The ids of a run for those of Marian."""
    vocabulary = entries_of(folder, name)
    kept = sorted(index for entry, index in vocabulary.items() if entry not in ("</s>", "<unk>", "<pad>"))
    order = {index: 4 + number for number, index in enumerate(kept)}
    return [order.get(index, 1 if index == 1 else 3) for index in ids]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_function": "relu", "encoder_layers": 6, "decoder_layers": 1},
        {"activation_function": "gelu", "tie_word_embeddings": False},
    ],
)
def test_an_imported_model_gives_the_logits_of_the_original(marian, mt, run_of, options):
    folder, original, (source, _) = marian(**options)
    run = run_of(folder)
    assert run.config.corpus.languages == ("en", "de")
    status, _, err = mt("evaluate", "--run", "runs/opus")
    assert status == 2 and "its corpora are not known" in err
    pad, columns = original.config.pad_token_id, in_ours(folder, range(original.config.vocab_size - 1))
    for line in [*LINES[:132:11], *LINES[132:]]:
        ids = their_ids(folder, source, line)
        ours = in_ours(folder, ids)
        added = 4 + len(entries_of(folder)) - 3  # For the pieces without an entry.
        assert [index if index < added else 1 for index in run.tokenizers[0].encode([line])[0]] == ours
        with torch.inference_mode():
            expected = original(torch.tensor([[*ids, 0]]), decoder_input_ids=torch.tensor([[pad, *ids[:7]]])).logits
            logits = run.model.eval()(torch.tensor([[*ours, EOS_ID]]), torch.tensor([[SOS_ID, *ours[:7]]]))
        torch.testing.assert_close(logits[..., columns], expected[..., :-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_imported_tokenizers_split_text_as_sentencepiece_does(marian, run_of, kind):
    folder, _, models = marian(kind)
    for tokenizer, model in zip(run_of(folder).tokenizers, models, strict=True):
        names = {*entries_of(folder)} | {model.id_to_piece(index) for index in range(model.vocab_size())}
        for line in LINES:
            expected = model.encode(line, out_type=str)
            assert tokenizer.pieces(line) == [piece if piece in names else "[UNK]" for piece in expected], line
            assert tokenizer.encode_flat([line])[0].tolist() == tokenizer.encode([line])[0]
        lines = [line for line in LINES if "[UNK]" not in tokenizer.tokens(tokenizer.encode([line])[0])]
        assert tokenizer.decode(tokenizer.encode(lines)) == [model.decode(model.encode(line)) for line in lines]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_an_unknown_piece_that_the_other_side_knows_has_its_id_as_in_transformers(marian, run_of, export, kind):
    folder, _, (source, target) = marian(kind, target_lines=[*LINES, *["(§ ♪ §) ♪"] * 9])
    entries = entries_of(folder)
    source_names, target_names = (
        {model.id_to_piece(i) for i in range(model.vocab_size())} for model in (source, target)
    )
    absent = [piece for piece in target_names - source_names if len(piece) == 1 and piece in entries]
    library_tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    tokenizer = run_of(folder).tokenizers[0]
    for piece in absent:
        for text in (piece, f"a {piece} b", f"{piece}{piece}", f"{piece}☃"):
            assert tokenizer.encode([text]) == [in_ours(folder, library_tokenizer(text)["input_ids"][:-1])], text
    assert any(in_ours(folder, [entries[piece]]) == tokenizer.encode([f"a {piece}"])[0][-1:] for piece in absent)
    export("runs/opus", "huggingface", "back")


def child_config(tree, tmp_path, steps, corpus, **init):
    """Write the config of a run that begins with an imported one."""
    tree["name"], tree["init"] = "child", {"run": "runs/opus"} | init
    tree["corpus"] = {"source": "en", "target": "de", "valid": {"fraction": 0.1}, "max_tokens": 100} | corpus
    tree["training"] |= {"max_steps": steps, "batch_tokens": 1000, "validate_every_steps": steps // 2}
    tree["training"]["learning_rate"] = 1e-2
    tree["decoding"] = {"beam_size": 1, "max_length": 12}
    del tree["model"]
    (tmp_path / "child.yaml").write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("kind", "tags"),
    [
        ("unigram", ()),
        ("bpe", (">>deu<<",)),
        pytest.param("unigram", (">>deu<<",), marks=pytest.mark.slow),
        pytest.param("bpe", (), marks=pytest.mark.slow),
    ],
)
def test_the_vocabulary_of_an_imported_model_is_extended_by_a_new_script(
    marian, mt, run_of, export, tiny_tree, tmp_path, kind, tags
):
    parent = run_of(marian(kind, tags)[0])
    chinese = ["一个男人在睡觉。", "两只狗在看一个男人。", "一个女人在看书。", "狗在睡觉。"] * 20
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in LINES[:80]), encoding="utf-8")
    (tmp_path / "train.zh").write_text("".join(f"{line}\n" for line in chinese), encoding="utf-8")
    source = {"files": ["train.en", "train.zh"]} | ({"tag": ">>zho<<", "name": "zho"} if tags else {})
    corpus = {"target": "zh", "train": [source], "filters": {"duplicates": False, "overlap": False}}
    child_config(tiny_tree, tmp_path, 2, corpus, vocabulary="extend")
    status, _, err = mt("train", "--config", "child.yaml")
    assert status == 0, err
    assert "  opus on valid, before the first step: " in err
    child = TrainedRun.load(tmp_path / "runs/child")
    before, after = parent.tokenizers[1], child.tokenizers[1]
    assert any(1 in ids for ids in before.encode(chinese)) and "[UNK]" in before.pieces(chinese[0])
    assert not any(1 in ids for ids in after.encode(chinese))
    assert after.decode(after.encode(chinese)) == chinese
    for old, new in zip(parent.tokenizers, child.tokenizers, strict=True):
        assert new.encode(LINES) == old.encode(LINES)
    assert [tokenizer.vocab_size for tokenizer in child.tokenizers] == [after.vocab_size] * 2
    if tags:
        assert len(child.tokenizers[0].encode([">>zho<<"])[0]) == 1
    export("runs/child", "huggingface", "back")
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert "weights of opus (`en` to `de`)" in card and "valid (no test set" in card
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "back/target.spm"))
    assert [model.encode(line, out_type=str) for line in chinese[:4]] == list(map(after.pieces, chinese[:4]))
    assert set(entries_of(tmp_path / "back")).issuperset(piece for line in chinese for piece in after.pieces(line))


@pytest.mark.parametrize("options", [{}, {"kind": "bpe", "tie_word_embeddings": False}])
def test_import_and_export_are_inverse(marian, run_of, export, tmp_path, options):
    folder, original, (source, _) = marian(**options)
    one = run_of(folder)
    export("runs/opus", "huggingface", "opus-mt-en-de-back")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained("opus-mt-en-de-back").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("opus-mt-en-de-back")
    old, new, pad = entries_of(folder), entries_of(tmp_path / "opus-mt-en-de-back"), original.config.pad_token_id
    columns = [[entries[name] for name in old if name != "<pad>"] for entries in (new, old)]
    for line in LINES[::7]:
        ids = torch.tensor([[*their_ids(folder, source, line), 0]])
        with torch.inference_mode():
            expected = original(ids, decoder_input_ids=torch.tensor([[pad]])).logits
            logits = back(torch.tensor([tokenizer(line)["input_ids"]]), decoder_input_ids=torch.tensor([[2]])).logits
        torch.testing.assert_close(logits[..., columns[0]], expected[..., columns[1]], atol=1e-4, rtol=1e-4)
    two = run_of("opus-mt-en-de-back", "again", "--source-language", "en", "--target-language", "de")
    assert (one.config.decoding, one.max_tokens) == (two.config.decoding, two.max_tokens)
    assert_equal_runs(one, two)


@pytest.mark.parametrize("is_source_larger", [True, False])
def test_each_of_two_vocabularies_has_its_own_padding(one_thread, run_of, export, tmp_path, is_source_larger):
    folder = tmp_path / "opus-en-de"
    folder.mkdir()
    original, _ = write_two_vocabularies(folder, *((LINES, LINES[:40]) if is_source_larger else (LINES[:40], LINES)))
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    source, target = (entries_of(folder, name) for name in ("vocab.json", "target_vocab.json"))
    pad = original.config.pad_token_id
    assert (len(source) > len(target)) == is_source_larger
    assert (pad, tokenizer.pad_token_id) == (target["<pad>"], source["<pad>"])
    run = run_of("opus-en-de")
    # Among them are all pieces of the source, one of which has the id of the padding of the target.
    pieces = [name.replace("▁", " ") for name in sorted(source, key=source.__getitem__)[2:-1]]
    lines = [*LINES[::9], *(f"one{piece} two" for piece in pieces)]
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    assert (batch["input_ids"] == pad).any()
    decoder = torch.tensor([[pad, *range(3, 9)]]).expand(len(lines), -1)
    original_columns = [index for index in range(len(target)) if index != pad]
    columns = in_ours(folder, original_columns, "target_vocab.json")
    tgt_ids = torch.tensor([[SOS_ID, *in_ours(folder, range(3, 9), "target_vocab.json")]])
    with torch.inference_mode():
        logits = original(batch["input_ids"], batch["attention_mask"], decoder).logits[..., original_columns]
        for line, expected in zip(lines, logits, strict=True):
            src_ids = torch.tensor([[*run.tokenizers[0].encode([line])[0], EOS_ID]])
            ours = run.model.eval()(src_ids, tgt_ids)[0, :, columns]
            torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    if is_source_larger:
        export("runs/opus", "huggingface", "back-en-de")
        assert_equal_runs(run_of("back-en-de", "again"), run)


def test_a_bundle_becomes_a_run_again(marian, mt, run_of, export, trained):
    one = TrainedRun.load(trained)
    export(trained, "bundle", "bundle")
    two = run_of("bundle", "again")
    assert_equal_runs(one, two)
    assert (one.config.model, one.config.decoding) == (two.config.model, two.config.decoding)
    expected = mt("translate", "--run", trained, "one two three.")[1]
    assert mt("translate", "--run", "runs/again", "one two three.")[1] == expected
    imported = run_of(marian()[0])
    export("runs/opus", "bundle", "bundle-of-marian")
    assert_equal_runs(imported, run_of("bundle-of-marian", "opus-again"))
