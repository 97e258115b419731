import copy
import json
import os
import random
import shutil
from io import BytesIO

import numpy as np
import pytest
import torch
import yaml
from marian_files import LINES, entries_of, write_marian, write_native, write_two_vocabularies
from safetensors.torch import load_file, save_file

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.features.exchange import marian_files
from mt_cli.tokenizer.special import EOS_ID, SOS_ID
from mt_cli.translation.translator import Translator

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
sentencepiece_model_pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")


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


def their_ids(folder, model, text):
    """The ids of a source in Marian, by SentencePiece itself."""
    vocabulary = entries_of(folder)
    return [vocabulary.get(piece, 1) for piece in model.encode(text, out_type=str)]


def in_ours(run, folder, ids):
    """The ids of a run for those of Marian."""
    vocabulary = entries_of(folder)
    names = {index: name for name, index in vocabulary.items() if name not in ("</s>", "<unk>", "<pad>")}
    order = {index: 4 + number for number, index in enumerate(sorted(names))}
    return [order.get(index, 1 if index == 1 else 3) for index in ids]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_function": "relu", "encoder_layers": 6, "decoder_layers": 1},
        {"activation_function": "gelu", "tie_word_embeddings": False},
    ],
)
def test_an_imported_model_gives_the_logits_of_the_original(marian, mt, tmp_path, options):
    folder, theirs, (source, _) = marian(**options)
    status, out, err = mt("import", folder, "--output", "runs/opus")
    assert (status, out) == (0, "runs/opus\n"), err
    run = TrainedRun.load(tmp_path / "runs/opus")
    assert run.config.corpus.languages == ("en", "de")
    status, _, err = mt("evaluate", "--run", "runs/opus")
    assert status == 2 and "its corpora are not known" in err
    for line in [*LINES[:132:11], *LINES[132:]]:
        ids = their_ids(folder, source, line)
        ours = in_ours(run, folder, ids)
        added = 4 + len(entries_of(folder)) - 3  # For the pieces without an entry.
        assert [index if index < added else 1 for index in run.tokenizers[0].encode([line])[0]] == ours
        pad = theirs.config.pad_token_id
        decoder = [pad, *ids[:7]]
        with torch.inference_mode():
            expected = theirs(torch.tensor([[*ids, 0]]), decoder_input_ids=torch.tensor([decoder])).logits
            src_ids, tgt_ids = torch.tensor([[*ours, EOS_ID]]), torch.tensor([[SOS_ID, *ours[:7]]])
            found = run.model.eval()(src_ids, tgt_ids)
        columns = in_ours(run, folder, range(theirs.config.vocab_size - 1))
        torch.testing.assert_close(found[..., columns], expected[..., :-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_imported_tokenizers_split_text_as_sentencepiece_does(marian, mt, tmp_path, kind):
    folder, _, models = marian(kind)
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    run = TrainedRun.load(tmp_path / "runs/opus")
    entries = {*entries_of(folder)}
    for tokenizer, model in zip(run.tokenizers, models, strict=True):
        names = entries | {model.id_to_piece(index) for index in range(model.vocab_size())}
        for line in LINES:
            expected = model.encode(line, out_type=str)
            assert tokenizer.pieces(line) == [piece if piece in names else "[UNK]" for piece in expected], line
            assert tokenizer.encode_flat([line])[0].tolist() == tokenizer.encode([line])[0]
        lines = [line for line in LINES if "[UNK]" not in tokenizer.tokens(tokenizer.encode([line])[0])]
        assert tokenizer.decode(tokenizer.encode(lines)) == [model.decode(model.encode(line)) for line in lines]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_an_unknown_piece_that_the_other_side_knows_has_its_id_as_in_transformers(marian, mt, tmp_path, kind):
    folder, _, (source, target) = marian(kind, target_lines=[*LINES, *["(§ ♪ §) ♪"] * 9])
    entries = entries_of(folder)
    source_names, target_names = ({each.id_to_piece(i) for i in range(each.vocab_size())} for each in (source, target))
    absent = [piece for piece in target_names - source_names if len(piece) == 1 and piece in entries]
    assert absent
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    run = TrainedRun.load(tmp_path / "runs/opus")
    for piece in absent:
        for text in (piece, f"a {piece} b", f"{piece}{piece}", f"{piece}☃"):
            expected = in_ours(run, folder, theirs(text)["input_ids"][:-1])
            assert run.tokenizers[0].encode([text]) == [expected], text
    assert any(
        in_ours(run, folder, [entries[piece]]) == run.tokenizers[0].encode([f"a {piece}"])[0][-1:] for piece in absent
    )
    assert mt("export", "--run", "runs/opus", "--format", "huggingface", "--output", "back")[0] == 0


def test_an_imported_model_translates_as_the_original(marian, mt, tmp_path):
    folder, theirs, (source, _target) = marian()
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    translator = Translator.load(tmp_path / "runs/opus", precision="fp32")
    vocabulary = entries_of(folder)
    names = {index: name for name, index in vocabulary.items()}
    for line in LINES[:100:9]:
        ids = torch.tensor([[*their_ids(folder, source, line), 0]])
        pad = theirs.config.pad_token_id
        options = dict(num_beams=1, do_sample=False, max_new_tokens=20, bad_words_ids=[[pad]])
        (output,) = theirs.generate(ids, **options)
        tokens = [names[int(index)] for index in output[1:] if int(index) not in (0, pad)]
        (found,) = translator.engine.search(
            translator.source_tokenizer.encode([line]),
            translator.decoding.greedy.model_copy(update={"max_length": 20, "unk": "keep"}),
        )
        ours = [token.removeprefix("\ue000") for token in translator.target_tokenizer.tokens(found[0].ids)]
        assert ours == [{"<unk>": "[UNK]"}.get(token, token) for token in tokens][: len(ours)]


def test_an_imported_model_is_fine_tuned(marian, mt, corpus, tmp_path):
    folder, _, _ = marian()
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    tree = {
        "name": "child",
        "corpus": {
            **{"source": "en", "target": "de", "valid": {"fraction": 0.1}, "max_tokens": 100},
            "train": {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]},
        },
        "init": {"run": "runs/opus"},
        "evaluation": {"num_resamples": 10},
        "training": {
            "num_pictures": 0,
            "max_steps": 8,
            "batch_tokens": 1000,
            "validate_every_steps": 4,
            "learning_rate": 1e-2,
        },
        "decoding": {"beam_size": 1, "max_length": 12},
    }
    (tmp_path / "child.yaml").write_text(json.dumps(tree))
    status, _, err = mt("train", "--config", "child.yaml")
    assert status == 0, err
    rows = [json.loads(line) for line in (tmp_path / "runs/child/metrics.jsonl").read_text("utf-8").splitlines()]
    losses = [row["valid/loss"] for row in rows if "valid/loss" in row]
    assert losses[-1] < losses[0]
    assert mt("translate", "--run", "runs/child", "one two.")[0] == 0


@pytest.mark.parametrize(
    ("kind", "tags"),
    [
        ("unigram", ()),
        ("bpe", (">>deu<<",)),
        pytest.param("unigram", (">>deu<<",), marks=pytest.mark.slow),
        pytest.param("bpe", (), marks=pytest.mark.slow),
    ],
)
def test_the_vocabulary_of_an_imported_model_is_extended_by_a_new_script(marian, mt, corpus, tmp_path, kind, tags):
    folder, _, _ = marian(kind, tags)
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    chinese = ["一个男人在睡觉。", "两只狗在看一个男人。", "一个女人在看书。", "狗在睡觉。"] * 20
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in LINES[:80]), encoding="utf-8")
    (tmp_path / "train.zh").write_text("".join(f"{line}\n" for line in chinese), encoding="utf-8")
    source = {"files": ["train.en", "train.zh"]} | ({"tag": ">>zho<<", "name": "zho"} if tags else {})
    tree = {
        "name": "child",
        "corpus": {
            **{
                "source": "en",
                "target": "zh",
                "valid": {"fraction": 0.1},
                "max_tokens": 100,
                "filters": {"duplicates": False, "overlap": False},
            },
            "train": [source],
        },
        "init": {"run": "runs/opus", "vocabulary": "extend"},
        "evaluation": {"num_resamples": 10},
        "training": {
            "num_pictures": 0,
            "max_steps": 2,
            "batch_tokens": 1000,
            "validate_every_steps": 2,
            "learning_rate": 1e-4,
        },
        "decoding": {"beam_size": 1, "max_length": 12},
    }
    (tmp_path / "child.yaml").write_text(json.dumps(tree))
    status, _, err = mt("train", "--config", "child.yaml")
    assert status == 0, err
    parent, child = TrainedRun.load(tmp_path / "runs/opus"), TrainedRun.load(tmp_path / "runs/child")
    before, after = parent.tokenizers[1], child.tokenizers[1]
    assert any(1 in ids for ids in before.encode(chinese))
    assert "[UNK]" in before.pieces(chinese[0])
    assert not any(1 in ids for ids in after.encode(chinese))
    assert after.decode(after.encode(chinese)) == chinese
    for old, new in zip(parent.tokenizers, child.tokenizers, strict=True):
        assert new.encode(LINES) == old.encode(LINES)
    assert [each.vocab_size for each in child.tokenizers] == [after.vocab_size] * 2
    if tags:
        assert len(child.tokenizers[0].encode([">>zho<<"])[0]) == 1
    status, _, err = mt("export", "--run", "runs/child", "--format", "huggingface", "--output", "back")
    assert status == 0, err
    card = (tmp_path / "back/README.md").read_text(encoding="utf-8")
    assert "Training began with the weights of opus (`en` to `de`)." in card
    assert "valid (no test set: it also chose the checkpoint)" in card
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "back/target.spm"))
    assert [theirs.encode(line, out_type=str) for line in chinese[:4]] == list(map(after.pieces, chinese[:4]))
    names = entries_of(tmp_path / "back")
    assert set(names).issuperset(piece for line in chinese for piece in after.pieces(line))


def test_pickled_weights_are_read_only_if_that_is_allowed(marian, mt, tmp_path):
    folder, theirs, _ = marian()
    torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    status, _, err = mt("import", folder, "--output", "runs/opus")
    assert status == 2
    assert "pickle" in err and "--allow-pickle" in err
    assert mt("import", folder, "--output", "runs/opus", "--allow-pickle")[0] == 0


class Command:
    """A value that runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch was_run",)


@pytest.mark.parametrize("content", [Command(), [1, 2], {"epoch": 3, "model": {}}])
def test_a_pickle_with_other_values_than_tensors_is_not_read(marian, mt, tmp_path, content):
    folder, _, _ = marian()
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    status, _, err = mt("import", folder, "--output", "runs/opus", "--allow-pickle")
    assert status == 2
    assert "pytorch_model.bin: " in err and "holds" in err and "weights_only" not in err
    assert not (tmp_path / "was_run").exists() and not (tmp_path / "runs/opus").exists()


def with_options(**options):
    """A change of `config.json`."""

    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | options))

    return change


def with_weights(change):
    """A change of each of the weights."""

    def change_file(folder):
        path = folder / "model.safetensors"
        save_file({name: change(weight) for name, weight in load_file(path).items()}, path)

    return change_file


def npy():
    """The content of a file with a single array."""
    content = BytesIO()
    np.save(content, np.zeros(3))
    return content.getvalue()


def without_last_entries(folder):
    vocabulary = entries_of(folder)
    kept = sorted(vocabulary, key=vocabulary.__getitem__)[:60]
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(kept)}))


def with_pieces(change):
    """A change of the SentencePiece model of the source."""

    def change_file(folder):
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((folder / "source.spm").read_bytes())
        change(proto)
        (folder / "source.spm").write_bytes(proto.SerializeToString())

    return change_file


def with_charsmap(old, new):
    """A change of the normalisation of the source."""

    def change(proto):
        charsmap = proto.normalizer_spec.precompiled_charsmap
        proto.normalizer_spec.precompiled_charsmap = charsmap.replace(old, new, 1) if old else new

    return with_pieces(change)


def with_complex_weights(folder):
    """A change of all weights; written by hand, because older versions of safetensors do not write complex numbers."""
    path, header, content = folder / "model.safetensors", {}, b""
    for name, weight in load_file(path).items():
        data = weight.to(torch.complex64).numpy().tobytes()
        place = [len(content), len(content) + len(data)]
        header[name] = {"dtype": "C64", "shape": list(weight.shape), "data_offsets": place}
        content += data
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def with_weight(name, change):
    """A change of one of the weights."""

    def change_file(folder):
        path = folder / "model.safetensors"
        weights = load_file(path)
        save_file(weights | {name: change(weights[name]).contiguous()}, path)

    return change_file


def with_more_weights(name, like, change=torch.zeros_like):
    """Another weight, made of one of the others."""

    def change_file(folder):
        path = folder / "model.safetensors"
        weights = load_file(path)
        save_file(weights | {name: change(weights[like]).contiguous()}, path)

    return change_file


TABLE = "model.shared.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_last_entries, "pad_token_id is "),
        (with_charsmap(b"", b"abc"), "damaged normalisation"),
        (with_charsmap(b"\0a\0", b"\0" + b"a" * 100_000 + b"\0"), "damaged normalisation"),
        (with_pieces(lambda proto: proto.pieces.add(piece="x" * 10**6, type=1)), "a piece of more than 512 characters"),
        (with_weight("model.shared.weight", lambda weight: weight[0, 0]), "model.shared.weight is [], and"),
        (with_weight("model.shared.weight", lambda weight: weight[:, :-1]), "model.shared.weight is ["),
        (with_weight("final_logits_bias", lambda weight: weight[:, :-1]), "final_logits_bias has another size"),
        (with_complex_weights, "model.safetensors: cannot be read: "),
        (lambda folder: (folder / "config.json").write_text("[" * 3000), "config.json: cannot be used: "),
        (
            lambda folder: (folder / "vocab.json").write_text('{"a": ' + "9" * 5000 + "}"),
            "vocab.json: cannot be used: ",
        ),
        (lambda folder: (folder / "generation_config.json").write_text("3"), "generation_config.json: cannot be used"),
        (with_options(encoder_layers=1), "belongs to no layer"),
        (with_options(encoder_layers=3), "do not fit its description"),
        (with_options(vocab_size=50), "vocab_size is 50, and the vocabulary has"),
        (with_options(decoder_vocab_size=50), "decoder_vocab_size is 50, and the vocabulary has"),
        (with_options(share_encoder_decoder_embeddings=False), "there is no model.encoder.embed_tokens.weight"),
        (with_options(tie_word_embeddings=False), "tie_word_embeddings is false, and there is no lm_head.weight"),
        (
            with_more_weights("model.encoder.embed_tokens.weight", TABLE),
            "embed_tokens.weight differs from model.shared",
        ),
        (
            with_more_weights("model.decoder.embed_tokens.weight", TABLE),
            "embed_tokens.weight differs from model.shared",
        ),
        (with_more_weights("lm_head.weight", TABLE), "lm_head.weight differs from model.shared.weight"),
        (with_more_weights("model.encoder.embed_positions.weight", TABLE), "other values than sines and cosines"),
        (with_more_weights("model.encoder.layernorm_embedding.weight", TABLE), "belongs to no layer"),
        (with_options(eos_token_id=1), "eos_token_id is 1, and the vocabulary has </s> the id 0"),
        (with_options(pad_token_id=7, decoder_start_token_id=7), "pad_token_id is 7, and the vocabulary has <pad> the"),
        (with_options(model_type="a\nb"), "has the architecture 'a\\nb', which mt import does not read"),
        (with_options(model_type="m2m_100"), "'m2m_100' (M2M100 or NLLB), which mt import does not read; it reads"),
        (with_options(model_type=None), "model_type: input should be 'marian' or 'pegasus'"),
        (
            lambda folder: (folder / "generation_config.json").write_text('{"forced_bos_token_id": 7}'),
            "generation_config.json: cannot be used: forced_bos_token_id: input should be null",
        ),
        (with_options(d_model=65536), "do not fit its description"),
        (
            with_options(dropout=5.0),
            "config.json: cannot be used: dropout: input should be less",
        ),
        (with_options(eos_token_id=-5), "eos_token_id"),
        (with_options(eos_token_id=99_999), "eos_token_id is 99,999, and the vocabulary has </s> the id 0"),
        (with_weights(lambda weight: weight.to(torch.int8)), "not finite numbers"),
        (with_weights(lambda weight: weight * float("nan")), "not finite numbers"),
        (lambda folder: (folder / "config.json").unlink(), "has no model: no config.json, decoder.yml or model.json"),
        (lambda folder: (folder / "source.spm").write_bytes(b"no model"), "source.spm: not"),
        (lambda folder: (folder / "vocab.json").write_text("[]"), "vocab.json: cannot be used: "),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 20), "model.safetensors: cannot be read"),
    ],
)
def test_a_damaged_model_is_refused_and_nothing_is_written(marian, mt, tmp_path, damage, message):
    folder, _, _ = marian()
    damage(folder)
    status, out, err = mt("import", folder, "--output", "runs/opus")
    assert (status, out) == (2, "")
    assert message in err and err.count("mt: ") == 1
    assert not (tmp_path / "runs").exists()


def test_a_run_that_could_not_be_read_again_is_not_kept(marian, mt, monkeypatch, tmp_path):
    folder, _, _ = marian()
    monkeypatch.setattr("mt_cli.config.loading.MAX_CONFIG_BYTES", 1000)
    status, out, err = mt("import", folder, "--output", "runs/opus")
    assert (status, out) == (2, "")
    assert "mt: runs/opus: the run cannot be read again, so nothing of it is kept: runs/opus/config.yaml: larger" in err
    assert not (tmp_path / "runs").exists()


def test_what_cannot_be_imported_is_refused_by_name(marian, mt, tmp_path):
    folder, _, _ = marian(scale_embedding=False)
    assert "scale_embedding" in mt("import", folder, "--output", "runs/opus")[2]
    assert "no such folder" in mt("import", "nowhere", "--output", "runs/opus")[2]
    shutil.copytree(folder, tmp_path / "model")
    assert "its source language is not known" in mt("import", "model", "--output", "runs/opus")[2]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("options", [{}, {"kind": "bpe", "tie_word_embeddings": False}])
def test_import_and_export_are_inverse(marian, mt, tmp_path, options):
    folder, theirs, (source, _) = marian(**options)
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    status, _, err = mt("export", "--run", "runs/opus", "--format", "huggingface", "--output", "opus-mt-en-de-back")
    assert status == 0, err
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained("opus-mt-en-de-back").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("opus-mt-en-de-back")
    vocabulary, new = entries_of(folder), entries_of(tmp_path / "opus-mt-en-de-back")
    common = [name for name in vocabulary if name != "<pad>"]
    for line in LINES[::7]:
        ids = their_ids(folder, source, line)
        with torch.inference_mode():
            expected = theirs(
                torch.tensor([[*ids, 0]]), decoder_input_ids=torch.tensor([[theirs.config.pad_token_id]])
            ).logits
            found = back(torch.tensor([tokenizer(line)["input_ids"]]), decoder_input_ids=torch.tensor([[2]])).logits
        torch.testing.assert_close(
            found[..., [new[name] for name in common]],
            expected[..., [vocabulary[name] for name in common]],
            atol=1e-4,
            rtol=1e-4,
        )
    languages = "--source-language", "en", "--target-language", "de"
    status, _, err = mt("import", "opus-mt-en-de-back", "--output", "runs/again", *languages)
    assert status == 0, err
    one, two = (TrainedRun.load(tmp_path / "runs" / name) for name in ("opus", "again"))
    assert [each.to_json() for each in one.tokenizers] == [each.to_json() for each in two.tokenizers]
    assert (one.config.decoding, one.max_tokens) == (two.config.decoding, two.max_tokens)
    for (name, weight), other in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        assert torch.equal(weight, other), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_function": "relu", "encoder_layers": 6, "decoder_layers": 1},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    ],
)
def test_marians_own_files_give_the_same_run_and_the_translations_of_ctranslate2(marian, mt, tmp_path, options):
    folder, theirs, (source, _target) = marian(**options)
    is_shared = options.get("share_encoder_decoder_embeddings", True)
    with torch.no_grad():
        for embedding in (theirs.get_encoder(), theirs.get_decoder()):
            embedding.embed_tokens.weight[-1] = 0
        theirs.lm_head.weight[-1] = 0
        theirs.final_logits_bias[:, -1] = -1e9
    theirs.save_pretrained(folder)
    write_native(theirs, folder, tmp_path / "opus-en-de", is_shared)
    if not is_shared:
        shutil.copy(folder / "vocab.json", folder / "target_vocab.json")
    for name in ("opus-mt-en-de", "opus-en-de"):
        status, _, err = mt("import", name, "--output", f"runs/{name}")
        assert status == 0, err
    one, two = (TrainedRun.load(tmp_path / "runs" / name) for name in ("opus-mt-en-de", "opus-en-de"))
    assert [each.to_json() for each in one.tokenizers] == [each.to_json() for each in two.tokenizers]
    for (name, weight), other in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        assert torch.equal(weight, other), name
    converters = pytest.importorskip("ctranslate2.converters.marian")
    vocab = str(tmp_path / "opus-en-de/vocab.yml")
    converters.MarianConverter(str(tmp_path / "opus-en-de/model.npz"), [vocab, vocab]).convert(str(tmp_path / "ct2"))
    engine = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu")
    translator = Translator.load(tmp_path / "runs/opus-en-de", precision="fp32")
    decoding = translator.decoding.model_copy(update={"beam_size": 1, "max_length": 20, "unk": "keep"})
    lines = [line for line in LINES[:100:9]]
    tokens = [source.encode(line, out_type=str) for line in lines]
    expected = engine.translate_batch(tokens, beam_size=1, max_decoding_length=20)
    found = translator.engine.search(translator.source_tokenizer.encode(lines), decoding)
    for (hypothesis,), result in zip(found, expected, strict=True):
        ours = [token.removeprefix("\ue000") for token in translator.target_tokenizer.tokens(hypothesis.ids)]
        assert [{"[UNK]": "<unk>"}.get(token, token) for token in ours] == result.hypotheses[0][: len(ours)]
        assert len(ours) == len(result.hypotheses[0])


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize(("is_source_larger", "is_native"), [(True, False), (True, True), (False, False)])
def test_each_of_two_vocabularies_has_its_own_padding(one_thread, mt, tmp_path, is_source_larger, is_native):
    (tmp_path / "opus-en-de").mkdir()
    sides = (LINES, LINES[:40]) if is_source_larger else (LINES[:40], LINES)
    theirs, _ = write_two_vocabularies(tmp_path / "opus-en-de", *sides)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "opus-en-de")
    source, target = (entries_of(tmp_path / "opus-en-de", name) for name in ("vocab.json", "target_vocab.json"))
    pad = theirs.config.pad_token_id
    assert (len(source) > len(target)) == is_source_larger
    assert (pad, tokenizer.pad_token_id) == (target["<pad>"], source["<pad>"])
    if is_native:
        write_native(theirs, tmp_path / "opus-en-de", tmp_path / "native-en-de", is_tied=False)
    folder = "native-en-de" if is_native else "opus-en-de"
    status, _, err = mt("import", folder, "--output", "runs/opus")
    assert status == 0, err
    run = TrainedRun.load(tmp_path / "runs/opus")
    # Among them are all pieces of the source, one of which has the id of the padding of the target.
    pieces = [name.replace("▁", " ") for name in sorted(source, key=source.__getitem__)[2:-1]]
    lines = [*LINES[::9], *(f"one{piece} two" for piece in pieces)]
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    assert (batch["input_ids"] == pad).any()
    decoder = torch.tensor([[pad, *range(3, 9)]]).expand(len(lines), -1)
    names = {index: name for name, index in target.items()}
    order = [index for index in sorted(names) if names[index] not in ("</s>", "<unk>", "<pad>")]
    columns = torch.tensor([1, 3, *range(4, 4 + len(order))])
    ids = [columns.tolist()[[1, 0, *order].index(index)] for index in range(3, 9)]
    with torch.inference_mode():
        theirs_found = theirs(batch["input_ids"], batch["attention_mask"], decoder).logits[..., [1, 0, *order]]
        for line, expected in zip(lines, theirs_found, strict=True):
            src_ids = torch.tensor([[*run.tokenizers[0].encode([line])[0], EOS_ID]])
            found = run.model.eval()(src_ids, torch.tensor([[SOS_ID, *ids]]))[0]
            torch.testing.assert_close(found[:, columns], expected, atol=1e-4, rtol=1e-4)
    if not is_native and is_source_larger:
        status, _, err = mt("export", "--run", "runs/opus", "--format", "huggingface", "--output", "back-en-de")
        assert status == 0, err
        assert mt("import", "back-en-de", "--output", "runs/again")[0] == 0
        again = TrainedRun.load(tmp_path / "runs/again")
        assert [each.to_json() for each in again.tokenizers] == [each.to_json() for each in run.tokenizers]
        weights = zip(run.model.state_dict().values(), again.model.state_dict().values(), strict=True)
        assert all(torch.equal(one, other) for one, other in weights)


def test_an_entry_of_a_vocabulary_is_read_as_yaml_spells_it():
    letters = "\x00\x07\x08\t\n\x0b\x0c\r\x1b\"\\ \x7f\x85\xa0\u2028\u2029\ufeff🙂'é▁字:#ax07"
    chance = random.Random(0)
    for text in [letters, *("".join(chance.choices(letters, k=length)) for length in range(1, 60))]:
        for options in ({"default_style": '"', "allow_unicode": is_plain} for is_plain in (True, False)):
            assert marian_files._unquoted(yaml.safe_dump(text, width=10**9, **options).removesuffix("\n")) == text
        assert marian_files._unquoted("'" + text.replace("'", "''") + "'") == text


def with_array(name, change, new_name=None):
    """A change of one of the arrays of Marian, or another array made of it."""

    def change_file(folder):
        with np.load(folder / "model.npz") as file:
            arrays = {each: file[each] for each in file.files}
        np.savez(folder / "model.npz", **arrays | {new_name or name: change(arrays[name])})

    return change_file


def with_options_of_marian(key, value):
    """A change of the description of a model in Marian's own files: another YAML text for a key."""

    def change(array):
        lines = array.tobytes().rstrip(b"\0").decode("utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(f"{key}:")]
        return np.frombuffer("\n".join([*kept, f"{key}: {value}"]).encode("utf-8"), np.int8)

    return with_array("special:model.yml", change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.npz").write_bytes(b"PK"), "model.npz: cannot be read"),
        (lambda folder: (folder / "model.npz").unlink(), "model.npz"),
        (
            lambda folder: (folder / "decoder.yml").write_text("models: [../x.npz]\n"),
            "'../x.npz' is not the name of a file beside it",
        ),
        (lambda folder: (folder / "decoder.yml").write_text("{}"), "names no models"),
        (lambda folder: (folder / "vocab.yml").write_text("a b c\n"), "not an entry of a vocabulary"),
        (lambda folder: (folder / "vocab.yml").write_bytes(b'"\xff": 0\n'), "vocab.yml: not UTF-8 at byte 1"),
        (lambda folder: (folder / "model.npz").write_bytes(npy()), "model.npz: cannot be read"),
        (lambda folder: (folder / "vocab.yml").write_text("</s>: 0\n<unk>: 1\n"), "vocabularies 2 entries"),
        (lambda folder: (folder / "vocab.yml").write_text("</s>: " + "0" * 5000), "not an entry of a vocabulary"),
        (lambda folder: (folder / "vocab.yml").write_text("</s>: 0\n<unk>: 1\n<pad>: 2\n"), "is called <pad>"),
        (with_array("encoder_l1_ffn_W1", lambda array: array[..., None]), "encoder_l1_ffn_W1 is no matrix"),
        (with_array("decoder_l1_self_Wq", lambda array: array[0, 0]), "decoder_l1_self_Wq is no matrix"),
        (with_array("Wemb", lambda array: array.astype(np.complex64)), "Wemb has values of type complex64"),
        (with_array("Wemb", lambda array: array.astype(np.int64)), "Wemb has values of type int64"),
        (
            with_array("encoder_l1_self_Wq", lambda array: array, "encoder_l9_self_Wq"),
            "'encoder_l9_self_Wq' belongs to no",
        ),
        (with_options_of_marian("enc-depth", "1"), "belongs to no layer"),
        (with_options_of_marian("dim-emb", "'a\n\n  b'"), "not supported: dim-emb 'a\\nb'"),
        (
            lambda folder: (folder / "decoder.yml").write_text('models: ["a\\nb"]\n'),
            "'a\\nb' is not the name of a file",
        ),
        (
            lambda folder: (folder / "decoder.yml").write_text(
                "models: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\nbeam-size: 0"
            ),
            "mt: opus-en-de: not supported: num_beams: input should be greater",
        ),
        (with_options_of_marian("dim-emb", ".inf"), "not supported: dim-emb inf"),
        (with_options_of_marian("enc-depth", "9" * 5000), "not valid YAML"),
        (with_options_of_marian("dec-depth", "[" * 3000), "not valid YAML"),
        (with_options_of_marian("dim-emb", '"\\UFFFFFFFF"'), "not valid YAML"),
        (with_options_of_marian("dim-emb", "!!timestamp abc"), "not valid YAML"),
        (with_options_of_marian("x", "&a [1]\n" + "".join(f"x{n}: *a\n" for n in range(2))), "is an alias"),
        (lambda folder: (folder / "decoder.yml").write_text("models: " + "x" * 300_000), "larger than 262,144 bytes"),
    ],
)
def test_damaged_files_of_marian_are_refused(marian, mt, tmp_path, damage, message):
    folder, theirs, _ = marian()
    write_native(theirs, folder, tmp_path / "opus-en-de")
    damage(tmp_path / "opus-en-de")
    status, _, err = mt("import", "opus-en-de", "--output", "runs/opus")
    assert status == 2
    assert message in err and err.count("mt: ") == 1, err
    assert not (tmp_path / "runs").exists()


def test_separate_tables_of_one_vocabulary_stay_separate(marian, mt, tmp_path):
    folder, theirs, _ = marian()
    write_native(theirs, folder, tmp_path / "opus-en-de")
    path = tmp_path / "opus-en-de/model.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    table = arrays.pop("Wemb")
    np.savez(path, **arrays, encoder_Wemb=table, decoder_Wemb=2 * table)
    status, _, err = mt("import", "opus-en-de", "--output", "runs/opus")
    assert status == 0, err
    model = TrainedRun.load(tmp_path / "runs/opus").model
    assert torch.equal(2 * model.source_embedding.table.weight, model.target_embedding.table.weight)
    assert torch.equal(model.projection.weight, model.target_embedding.table.weight)
    assert model.source_embedding.table.weight[4:].any()


def test_the_bundle_of_an_imported_model_is_imported_with_both_tokenizers(marian, mt, tmp_path):
    folder, _, _ = marian()
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    assert mt("export", "--run", "runs/opus", "--format", "bundle", "--output", "bundle")[0] == 0
    status, _, err = mt("import", "bundle", "--output", "runs/again")
    assert status == 0, err
    for one, other in zip(
        *(TrainedRun.load(tmp_path / "runs" / name).tokenizers for name in ("opus", "again")), strict=True
    ):
        assert one.to_json() == other.to_json()


def test_a_bundle_becomes_a_run_again(mt, trained, tmp_path):
    assert mt("export", "--run", trained, "--format", "bundle", "--output", "bundle")[0] == 0
    status, out, err = mt("import", "bundle", "--output", "runs/again")
    assert (status, out) == (0, "runs/again\n"), err
    one, two = TrainedRun.load(trained), TrainedRun.load(tmp_path / "runs/again")
    assert [each.to_json() for each in one.tokenizers] == [each.to_json() for each in two.tokenizers]
    assert (one.config.model, one.config.decoding) == (two.config.model, two.config.decoding)
    for (name, weight), other in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        assert torch.equal(weight, other), name
    expected = mt("translate", "--run", trained, "one two three.")[1]
    assert mt("translate", "--run", "runs/again", "one two three.")[1] == expected
    (tmp_path / "bundle/model.safetensors").unlink()
    status, _, err = mt("import", "bundle", "--output", "runs/other")
    assert (status, "has no weights" in err) == (2, True)


def with_description(section="model", **changes):
    """A change of the options of the model of a bundle, or of another section."""

    def change(folder):
        tree = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        tree[section] |= changes
        (folder / "model.json").write_text(json.dumps(tree))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_description(d_model=65536, d_ff=2**20), "the model that is described has"),
        (
            with_description("tokenizer", algorithm="sentencepiece"),
            "tokenizer.source.json: not a tokenizer of this model",
        ),
        (with_description("tokenizer", algorithm="bpe"), "tokenizer.source.json: not a tokenizer of this model"),
        (with_description(**{"a\nb": 1}), "model.'a\\nb': unknown key"),
        (with_description(num_encoder_layers=2), "cannot be imported: error(s) in loading state_dict"),
        (with_complex_weights, "model.safetensors: cannot be read: "),
        (with_weights(lambda weight: weight.to(torch.int32)), "int32, not finite numbers"),
        (with_weights(lambda weight: weight * float("inf")), "not finite numbers"),
        (lambda folder: (folder / "tokenizer.source.json").write_text("[" * 3000), "tokenizer.source.json: not a tok"),
        (lambda folder: (folder / "model.json").write_text("[" * 3000), "model.json: cannot be used: "),
    ],
)
def test_a_damaged_bundle_is_refused_and_nothing_is_written(mt, trained, tmp_path, damage, message):
    assert mt("export", "--run", trained, "--format", "bundle", "--output", "bundle")[0] == 0
    damage(tmp_path / "bundle")
    status, out, err = mt("import", "bundle", "--output", "runs/again")
    assert (status, out) == (2, "")
    assert message in err and err.count("mt: ") == 1, err
    assert not (tmp_path / "runs").exists()
