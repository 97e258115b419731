"""Damaged and unsupported M2M100 and NLLB models are refused in one line, and nothing is written."""

import json
import shutil

import pytest
import torch
from m2m100_files import write_m2m100, write_nllb
from test_damaged_models import CONFIG, DEEP, TABLE, Command, all_weights, copied, keys, remove, text, weights

SPM, FAST = "sentencepiece.bpe.model", "tokenizer.json"
LANGUAGES = {"m2m100": ("en", "de"), "nllb": ("eng_Latn", "ayr_Latn")}
OPTIONS = {  # What a refusal names, and the options of `config.json` that it refuses.
    "belongs to no layer": {"encoder_layers": 1},
    "config.json says": {"d_model": 64},
    "[16777216, 32]": {"vocab_size": 2**24},
    "vocab_size": {"vocab_size": 2**25},
    "scale_embedding": {"scale_embedding": False},
    "tie_word_embeddings": {"tie_word_embeddings": False},
    "decoder_start_token_id": {"decoder_start_token_id": 0},
    "eos_token_id": {"eos_token_id": 99},
    "activation_function": {"activation_function": "tanh"},
    "decoder_ffn_dim": {"encoder_ffn_dim": 32},
    "encoder_attention_heads": {"encoder_attention_heads": 5, "decoder_attention_heads": 5},
    "'m2m_200'": {"model_type": "m2m_200"},
}


def model_of(change):
    """A change of the model of `tokenizer.json`, in a folder without a SentencePiece model."""

    def damage(folder):
        (folder / SPM).unlink()
        tree = json.loads((folder / FAST).read_text(encoding="utf-8"))
        change(tree)
        (folder / FAST).write_text(json.dumps(tree), encoding="utf-8")

    return damage


def no_languages(folder):
    keys("tokenizer_config.json", extra_special_tokens=[])(folder)
    model_of(lambda tree: tree.update(added_tokens=[]))(folder)


def popped_merge(tree):
    """The first of several merges to a piece, which is taken out."""
    merges = tree["model"]["merges"]
    products = ["".join(merge) for merge in merges]
    return merges.pop(next(place for place, piece in enumerate(products) if products.count(piece) > 1))


def bomb(folder):
    """Many embeddings of one number, and few entries."""
    keys(CONFIG, vocab_size=100_000)(folder)
    weights(lambda tensors: tensors | {TABLE: torch.zeros(100_000, tensors[TABLE].shape[1])})(folder)


COMMON = [
    *((keys(CONFIG, **options), name) for name, options in OPTIONS.items()),
    (bomb, "entries for 100,000 embeddings"),
    (copied("lm_head.weight"), "lm_head.weight differs"),
    (copied("model.encoder.layernorm_embedding.weight"), "belongs to no layer"),
    (weights(lambda tensors: {name: tensor for name, tensor in tensors.items() if name != TABLE}), f"no {TABLE}"),
    (all_weights(lambda tensor: tensor * float("nan")), "not finite numbers"),
    *((text(name, DEEP), name) for name in ("model.safetensors", "generation_config.json", SPM, CONFIG)),
]
DAMAGES = {
    "m2m100": [
        *COMMON,
        *((text("vocab.json", content), "vocab.json") for content in ("[]", '{"a": 3}', DEEP)),
        (text("vocab.json", json.dumps({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 10**9})), "vocab.json"),
        (text("vocab.json", json.dumps({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 3})), "vocab.json"),
        (text("vocab.json", json.dumps({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "[EOS]": 4})), "vocab"),
        (remove(SPM), SPM),
        (text("tokenizer_config.json", '{"language_codes": "martian"}'), "languages"),
    ],
    "nllb": [
        *COMMON,
        *((text(FAST, content), FAST) for content in ("[]", "{}", DEEP, '{"model": {"type": "BPE"}}')),
        (keys("tokenizer_config.json", legacy_behaviour=True), "legacy_behaviour"),
        (keys("tokenizer_config.json", tokenizer_class="SMALL100Tokenizer"), "the tokenizer 'SMALL100Tokenizer'"),
        (model_of(lambda tree: tree["model"].update(byte_fallback=True)), FAST),
        (model_of(lambda tree: tree["model"].update(type="WordPiece")), FAST),
        (model_of(lambda tree: tree["model"].update(dropout=0.1)), "model.dropout is 0.1"),
        (keys(FAST, "model", dropout=0.1), "model.dropout is 0.1"),
        (model_of(lambda tree: tree["model"].update(ignore_merges=True)), "model.ignore_merges is True"),
        (model_of(lambda tree: tree["model"].update(fuse_unk=False)), "model.fuse_unk is False"),
        (model_of(lambda tree: tree["model"].update(end_of_word_suffix="</w>")), "model.end_of_word_suffix is '</w>'"),
        (model_of(lambda tree: tree["model"]["merges"].append(popped_merge(tree))), "in another order"),
        (model_of(lambda tree: tree["model"]["merges"].append(["q", "▁"])), "merge of 'q' and '▁' has no entry"),
        (model_of(lambda tree: popped_merge(tree)), "it lacks the merge of "),
        (model_of(lambda tree: tree["model"].update(merges=[["a"]])), FAST),
        (model_of(lambda tree: tree["model"]["vocab"].update({"x" * 10**6: 5})), FAST),
        (model_of(lambda tree: tree["model"]["vocab"].update({"a": 10**30})), FAST),
        (model_of(lambda tree: tree.update(normalizer={"type": "Lowercase"})), FAST),
        (model_of(lambda tree: tree.update(pre_tokenizer={"type": "Whitespace"})), FAST),
        (no_languages, "languages"),
        (
            model_of(lambda tree: tree["normalizer"]["normalizers"][0].update(precompiled_charsmap="AAAA")),
            "normalisation",
        ),
    ],
}


@pytest.fixture(scope="module")
def originals(one_thread, tmp_path_factory):
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("originals")
    for name, write in (("m2m100", write_m2m100), ("nllb", write_nllb)):
        (folder / name).mkdir()
        write(folder / name)
    return folder


@pytest.mark.parametrize(("kind", "damage", "name"), [(k, *row) for k, rows in DAMAGES.items() for row in rows])
def test_a_damaged_model_is_refused_by_name_and_nothing_is_written(originals, mt, tmp_path, kind, damage, name):
    folder = shutil.copytree(originals / kind, tmp_path / kind)
    damage(folder)
    source, target = LANGUAGES[kind]
    options = ("--source-language", source, "--target-language", target)
    status, out, err = mt("import", folder, "--output", "runs/parent", *options)
    assert (status, out) == (2, ""), err
    assert name in err and err.count("\n") == 1 == err.count("mt: "), err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--source-language and --target-language"),
        (("--languages", "eng_Latn"), "--target-language"),
        (("--languages", ", ,"), "names no language"),
        (("--languages", ""), "names no language"),
        (("--languages", "eng_Latn,fin_Latn"), "has no language 'fin_Latn'"),
        (("--languages", "en,ayr_Latn"), "did you mean eng_Latn"),
        (("--languages", "eng_Latn,ayr_Latn", "--target-language", "spa_Latn"), "has no language 'spa_Latn'"),
        (("--source-language", "eng_Latn", "--target-language", "eng_Latn"), "are both eng_Latn"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "grn_Latn"), "write NEW=NEAR"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "grn_Latn=xxx_Latn"), "has no language 'xxx_Latn'"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "quy_Latn=ayr_Latn"), "has quy_Latn already"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "a>b=ayr_Latn"), "use a code"),
        (("--languages", "eng_Latn,ayr_Latn", "--vocabulary-from", "nowhere"), "nowhere"),
    ],
)
def test_languages_that_a_model_lacks_are_refused_with_what_it_has(originals, mt, tmp_path, options, expected):
    status, out, err = mt("import", originals / "nllb", "--output", "runs/parent", *options)
    assert (status, out) == (2, "") and expected in err and err.count("\n") == 1, err
    assert not (tmp_path / "runs").exists()


def test_a_part_of_another_model_is_refused(originals, mt, tmp_path):
    folder = shutil.copytree(originals / "nllb", tmp_path / "marian-en-de")
    keys(CONFIG, model_type="marian")(folder)
    status, _, err = mt("import", folder, "--output", "runs/parent", "--languages", "en,de")
    assert status == 2 and "--languages" in err and "M2M100" in err


@pytest.mark.parametrize("content", [None, Command(), [1, 2]])
def test_a_pickle_is_read_only_if_that_is_allowed_and_it_holds_tensors(originals, mt, tmp_path, content):
    from safetensors.torch import load_file

    folder = shutil.copytree(originals / "nllb", tmp_path / "nllb")
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors if content is None else content, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    options = ("--languages", "eng_Latn,ayr_Latn", "--output", "runs/parent")
    status, _, err = mt("import", folder, *options)
    assert status == 2 and "--allow-pickle" in err
    status, _, err = mt("import", folder, *options, "--allow-pickle")
    assert status == (0 if content is None else 2), err
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: cc-by-nc-4.0\n---\n", "cc-by-nc-4.0"),
        ('---\nlicense: "mit"\r\n---\r\n', "mit"),
        ("---\nlanguage: en\nlicense: other\nlicense_name: seamless\n---\n", "seamless"),
        ("license: mit\n", None),
        ("---\nlanguage: en\n---\nlicense: mit\n", None),
        ("---\nlicense: [" + "[" * 100_000 + "\n---\n", None),
        ("", None),
    ],
)
def test_the_licence_is_the_one_in_the_metadata_of_the_card(tmp_path, card, licence):
    from mt_cli.features.exchange.licences import licence_of

    (tmp_path / "README.md").write_bytes(card.encode() + b"\xff")
    assert licence_of(tmp_path) == licence


def test_a_tokenizer_file_without_dropout_may_say_so(originals, mt, tmp_path):
    folder = shutil.copytree(originals / "nllb", tmp_path / "nllb")
    model_of(lambda tree: tree["model"].update(dropout=0.0, continuing_subword_prefix="", merges=old(tree)))(folder)
    status, _, err = mt("import", folder, "--output", "runs/parent", "--languages", "eng_Latn,ayr_Latn")
    assert status == 0, err


def old(tree):
    """Merges as older versions of the library write them."""
    return [" ".join(merge) for merge in tree["model"]["merges"]]


def test_files_that_give_an_entry_two_ids_are_refused(originals, mt, tmp_path):
    folder = shutil.copytree(originals / "nllb", tmp_path / "nllb")
    (folder / "added_tokens.json").write_text('{"eng_Latn": 5}')
    status, _, err = mt("import", folder, "--output", "runs/parent", "--languages", "eng_Latn,ayr_Latn")
    assert status == 2 and "give the entry 'eng_Latn' the ids 163 and 5" in err and err.count("\n") == 1, err
