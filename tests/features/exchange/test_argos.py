"""Packages of Argos Translate: their layout, what is refused, and use by the real program where it is installed."""

import json
import shlex
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.util import find_spec

import pytest
from texts import TEXTS

from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import TokenizerConfig
from mt_cli.config.sources import BuiltinSource
from mt_cli.corpus.sources import read_rows
from mt_cli.errors import InputError
from mt_cli.features.exchange.argos import choose_direction
from mt_cli.features.exchange.sentence_splitter import sentence_splitter
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.translation.sentences import sentences_of

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

LINES = [line for text in TEXTS.values() for line in text.split("\n") if line]
SPLIT = {
    "Hello there. How are you? I am fine!": ["Hello there.", "How are you?", "I am fine!"],
    'Dr. Smith came. He said "Hi." Then J. R. Brown left.': [
        "Dr. Smith came.",
        'He said "Hi."',
        "Then J. R. Brown left.",
    ],
    "It costs 3.50 now. ok then. 2020 was good.": ["It costs 3.50 now. ok then.", "2020 was good."],
    "今天天气好。我去公园！「好。」他说。": ["今天天气好。", "我去公园！", "「好。」他说。"],
    "नमस्ते। आप कैसे हैं?": ["नमस्ते।", "आप कैसे हैं?"],
    "Was?! Ja … Nein. (So.) Und": ["Was?!", "Ja …", "Nein.", "(So.)", "Und"],
    "Это дом. Вот г. Москва.": ["Это дом.", "Вот г. Москва."],
    "No end": ["No end"],
}


@pytest.fixture
def run_for_argos(trained, with_random_model, tmp_path):
    """A function that writes a run with a random model, and tokenizers that SentencePiece models can hold."""

    def make(algorithm="bpe", tags=(), is_shared=False, **corpus):
        run = TrainedRun.load(trained)
        options = TokenizerConfig(algorithm=algorithm, vocab_size=900, spacing="sentencepiece")
        source = train_tokenizer(LINES, options, tags)
        target = source if is_shared else train_tokenizer(LINES[::2], options)
        tree = run.config.model_dump(mode="json") | {"tokenizer": options.model_dump(mode="json")}
        tree["corpus"] |= corpus
        config = parse_config(tree, "x.yaml")
        run = with_random_model(replace(run, tokenizers=(source, target), config=config), {"positions": "rotary"})
        write_run(tmp_path / "runs" / "argos", run.config, run.tokenizers, run.model, run.max_tokens)
        return TrainedRun.load(tmp_path / "runs" / "argos")

    return make


@pytest.fixture
def argos(tmp_path, monkeypatch):
    """The modules `package` and `translate` of Argos Translate, with folders of their own and exact arithmetic."""
    reason = "argostranslate is not installed; it needs stanza and spacy, and an environment of its own"
    if find_spec("argostranslate") is None:
        pytest.skip(reason)
    for name in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "argos" / name))
    monkeypatch.setenv("ARGOS_COMPUTE_TYPE", "float32")
    from argostranslate import package, translate

    return package, translate


def content(path):
    """Files of a package by their name inside its folder, and the name of the folder."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        (folder,) = {name.partition("/")[0] for name in names}
        return {name.partition("/")[2]: archive.read(name) for name in names}, folder


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_package_has_the_model_the_pieces_the_languages_and_the_licence(mt, run_for_argos, tmp_path, algorithm):
    run = run_for_argos(algorithm)
    command = ("export", "--run", "runs/argos", "--format", "argos", "--output", "p.argosmodel")
    status, out, err = mt(*command, "--license", "cc-by-4.0", "--package-version", "1.2")
    assert (status, out) == (0, "") and "Install it:  " in err and "p.argosmodel" in err
    files, folder = content(tmp_path / "p.argosmodel")
    source, target = run.config.corpus.languages
    assert folder == f"translate-{source}_{target}-1_2"
    metadata = json.loads(files["metadata.json"])
    assert (metadata["from_code"], metadata["to_code"]) == (source, target)
    assert metadata["package_version"] == "1.2" and metadata["license"] == "cc-by-4.0"
    assert "cc-by-4.0" in files["README.md"].decode() and str(tmp_path) not in files["README.md"].decode()
    assert {"model/model.bin", "model/config.json", "minisbd/rules.onnx"} < files.keys()
    processor = sentencepiece.SentencePieceProcessor(model_proto=files["sentencepiece.model"])
    assert processor.encode(LINES) == run.tokenizers[0].encode(LINES)


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_pieces_of_the_target_are_decoded_by_the_model_of_the_source(mt, run_for_argos, tmp_path, is_shared):
    _, target = run_for_argos(is_shared=is_shared).tokenizers
    mt("export", "--run", "runs/argos", "--format", "argos", "--output", "p.argosmodel")
    files, _ = content(tmp_path / "p.argosmodel")
    processor = sentencepiece.SentencePieceProcessor(model_proto=files["sentencepiece.model"])
    for line in LINES:
        pieces = target.pieces(line)
        decoded = processor.decode_pieces(pieces).replace("▁", " ")  # As Argos Translate does.
        assert decoded.removeprefix(" ") == target.join(pieces)


def test_a_direction_of_several_is_chosen_and_its_tag_begins_each_source(mt, run_for_argos, tmp_path):
    parts = [
        {"builtin": "phrasebook-en-it", "split": "train", "languages": pair, "tag": tag, "reverse": reverse}
        for pair, tag, reverse in ((("en", "it"), "<2it>", False), (("it", "en"), "<2en>", True))
    ]
    run_for_argos(tags=("<2it>", "<2en>"), source="en", target="it", train=parts, valid=parts, test=None)
    command = ("export", "--run", "runs/argos", "--format", "argos", "--output", "p.argosmodel")
    assert mt(*command, "--to", "fr")[::2] == (
        2,
        "mt: --format argos: a package has one direction, and this model does not have it: "
        "en-it (<2it>), it-en (<2en>); use --from, --to or --tag\n",
    )
    status, _, err = mt(*command, "--to", "en")
    assert status == 0, err
    files, folder = content(tmp_path / "p.argosmodel")
    assert folder == "translate-it_en-1_0"
    config = json.loads(files["model/config.json"])
    assert config["add_source_bos"] is True and config["bos_token"] == "<2en>"


def test_a_variety_that_is_asked_for_is_exported_and_no_other(tiny_tree):
    parts = [
        {"files": ["a.en", "a.zh"], "languages": ["en", language], "tag": f"<2{language}>"}
        for language in ("zh-Hans", "zh-Hant")
    ]
    tree = tiny_tree | {"corpus": {"source": "en", "target": "zh-Hans", "train": parts, "valid": parts}}
    corpus = parse_config(tree, "x.yaml").corpus
    for language in ("zh-Hans", "zh-Hant", "zh_Hant"):
        direction = choose_direction(corpus, None, language, None)
        assert direction.languages[1] == language.replace("_", "-") and direction.tag == f"<2{direction.languages[1]}>"
    for source, target in ((None, "zh"), ("en", None), (None, "zh-TW")):
        with pytest.raises(InputError, match="a package has one direction"):
            choose_direction(corpus, source, target, None)
    assert choose_direction(corpus, None, None, None).tag == corpus.tagging.default
    one = corpus.model_copy(update={"train": corpus.train[:1]})
    assert choose_direction(one, "eng", "zh", None).languages == ("en", "zh-Hans")
    with pytest.raises(InputError, match="does not have it"):
        choose_direction(one, None, "zh-Hant", None)


def test_the_printed_command_installs_the_package(mt, run_for_argos, tmp_path):
    run_for_argos()
    _, _, err = mt("export", "--run", "runs/argos", "--format", "argos", "--output", "p.argosmodel")
    command = err.partition("Install it:  ")[2].strip()
    assert command.startswith("python -c ")
    (tmp_path / "argostranslate").mkdir()
    stub = "import zipfile\ninstall_from_path = lambda path: print(zipfile.is_zipfile(path))\n"
    (tmp_path / "argostranslate" / "package.py").write_text(stub)
    arguments = [sys.executable, *shlex.split(command)[1:]]
    assert subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=True, text=True).stdout == "True\n"
    readme = content(tmp_path / "p.argosmodel")[0]["README.md"].decode()
    assert "package.install_from_path('translate-" in readme and "argospm" not in readme + err


def test_a_model_without_tags_has_one_direction(tiny_tree):
    corpus = parse_config(tiny_tree, "x.yaml").corpus
    assert choose_direction(corpus, None, None, None).languages == corpus.languages


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--output", "p.zip"), "p.zip: give a file that ends in .argosmodel"),
        (("--output", "there.argosmodel"), "there.argosmodel: exists already; give a new file"),
        (("--output", "p.argosmodel", "--package-version", "new"), "--package-version new: use numbers and dots"),
        (("--output", "p.argosmodel", "--quantization", "int3"), "--quantization int3: use one of float32"),
        (("--output", "none/p.argosmodel"), "none/p.argosmodel: cannot be written: no such file or directory"),
    ],
)
def test_what_cannot_be_written_is_refused_with_one_line(mt, run_for_argos, tmp_path, options, message):
    run_for_argos()
    (tmp_path / "there.argosmodel").write_text("mine")
    status, out, err = mt("export", "--run", "runs/argos", "--format", "argos", *options)
    assert status in (1, 2) and out == "" and err.count("\n") == 1 and message in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "there.argosmodel"]
    assert (tmp_path / "there.argosmodel").read_text() == "mine"


def test_a_run_that_no_sentencepiece_model_holds_is_refused_with_what_to_choose(mt, trained, tmp_path):
    status, out, err = mt("export", "--run", trained, "--format", "argos", "--output", "p.argosmodel")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "cannot hold tokenizer." in err and "train a new model with tokenizer." in err and "--for argos" in err
    assert not (tmp_path / "p.argosmodel").exists()


def test_a_full_disk_leaves_nothing(mt, run_for_argos, tmp_path, monkeypatch):
    def write(*_):
        raise OSError(28, "No space left on device")

    run_for_argos()
    monkeypatch.setattr(zipfile.ZipFile, "write", write)
    status, _, err = mt("export", "--run", "runs/argos", "--format", "argos", "--output", "p.argosmodel")
    assert (status, err) == (1, "mt: p.argosmodel: cannot be written: no space left on device\n")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_options_of_argos_are_refused_with_other_formats(mt, trained):
    status, _, err = mt("export", "--run", trained, "--output", "x", "--package-version", "1.0")
    assert (status, err) == (2, "mt: --package-version is for --format argos\n")


def test_the_network_splits_sentences_as_minisbd_reads_it(tmp_path):
    minisbd = pytest.importorskip("minisbd", reason="minisbd is not installed")
    (tmp_path / "rules.onnx").write_bytes(sentence_splitter())
    splitter = minisbd.SBDetect(str(tmp_path / "rules.onnx"), use_gpu=False)
    for text, expected in SPLIT.items():
        assert splitter.sentences(text) == expected
    for text in ("", "   ", "a", "a" * 2500 + ". B " + "c " * 900):
        assert "".join("".join(splitter.sentences(text)).split()) == "".join(text.split())


def test_the_expected_sentences_are_those_of_translations():
    for text, expected in SPLIT.items():
        assert [sentence for sentence, _ in sentences_of(text)] == expected


def test_argos_translate_installs_a_package_and_translates_as_ctranslate2_does(mt, root, tmp_path, argos):
    package, translate = argos
    tokenizer = {"algorithm": "bpe", "vocab_size": 1200, "spacing": "sentencepiece", "shared": False}
    sizes = {"d_model": 64, "d_ff": 256, "num_encoder_layers": 1, "num_decoder_layers": 1}
    options = [f"tokenizer.{key}={str(value).lower()}" for key, value in tokenizer.items()]
    options += [f"model.{key}={value}" for key, value in sizes.items()] + ["name=tiny", "training.max_epochs=2"]
    command = ("train", "--config", root / "configs" / "quickstart.yaml")
    status, _, err = mt(*command, *(part for option in options for part in ("--set", option)))
    assert status == 0, err
    assert mt("export", "--run", "runs/tiny", "--format", "argos", "--output", "p.argosmodel")[0] == 0
    assert mt("export", "--run", "runs/tiny", "--output", "ct2")[0] == 0
    rows = read_rows(BuiltinSource(builtin="phrasebook-en-it", split="test"), ("en", "it"))
    lines = [line for _, line, _ in rows if len(sentences_of(line)) == 1][:300]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    search = ("--beam-size", "4", "--length-penalty", "0.2")
    status, out, err = mt("translate", "--engine", "ctranslate2", "--run", "ct2", "--input", "in.txt", *search)
    assert status == 0, err
    package.install_from_path(tmp_path / "p.argosmodel")
    (installed,) = package.get_installed_packages()
    translation = translate.get_translation_from_codes(installed.from_code, installed.to_code)
    # Argos Translate has another maximum length.
    pairs = [*zip(lines, out.split("\n")[:-1], strict=True)]
    pairs = [(line, ours) for line, ours in pairs if len(ours) < 80 and "�" not in ours]
    assert len(pairs) > 200 and [translation.translate(line) for line, _ in pairs] == [ours for _, ours in pairs]


def test_an_export_to_ctranslate2_carries_sentencepiece_models_that_do_the_same(mt, run_for_argos, tmp_path):
    import ctranslate2

    run = run_for_argos("unigram")
    assert mt("export", "--run", "runs/argos", "--output", "served")[0] == 0
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "served" / f"{side}.model"))
        for side in ("source", "target")
    )
    assert source.encode(LINES, out_type=str) == [run.tokenizers[0].pieces(line) for line in LINES]
    translator = ctranslate2.Translator(str(tmp_path / "served"))
    (result,) = translator.translate_batch([source.encode(LINES[0], out_type=str)], beam_size=1, max_decoding_length=9)
    ids = [target.piece_to_id(piece) for piece in result.hypotheses[0]]
    assert run.tokenizers[1].tokens(ids) == result.hypotheses[0] and isinstance(target.decode(ids), str)
