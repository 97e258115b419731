"""Packages of Argos Translate: their layout, what is refused, and use by the real program where it is installed."""

import json
import zipfile
from dataclasses import replace

import pytest
import sentencepiece
from texts import TEXTS

from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.sentences import sentences_of
from mt_cli.errors import InputError
from mt_cli.exchange.argos import Direction, Package, choose_direction
from mt_cli.exchange.sentence_splitter import sentence_splitter
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

LINES = [line for text in TEXTS.values() for line in text.split("\n") if line]
SPLIT = {
    "Hello there. How are you? I am fine!": ["Hello there.", "How are you?", "I am fine!"],
    'Dr. Smith said "Hi." Then J. R. Brown left.': ['Dr. Smith said "Hi."', "Then J. R. Brown left."],
    "It costs 3.50 now. ok then. 2020 was good.": ["It costs 3.50 now. ok then.", "2020 was good."],
    "今天天气好。我去公园！「好。」他说。": ["今天天气好。", "我去公园！", "「好。」他说。"],
    "नमस्ते। आप कैसे हैं?": ["नमस्ते।", "आप कैसे हैं?"],
    "Was?! Ja … Nein. (So.) Und": ["Was?!", "Ja …", "Nein.", "(So.)", "Und"],
    "Это дом. Вот г. Москва.": ["Это дом.", "Вот г. Москва."],
}


@pytest.fixture
def run_for_argos(trained, with_random_model, once):
    """A function that makes a run with a random model, and tokenizers that SentencePiece models can hold; its path."""

    def make(algorithm="bpe", tags=(), **corpus):
        def write(folder):
            run = TrainedRun.load(trained)
            options = TokenizerConfig(algorithm=algorithm, vocab_size=900, spacing="sentencepiece")
            tokenizers = train_tokenizer(LINES, options, tags), train_tokenizer(LINES[::2], options)
            tree = run.config.model_dump(mode="json") | {"tokenizer": options.model_dump(mode="json")}
            tree["corpus"] |= corpus
            run = replace(run, tokenizers=tokenizers, config=parse_config(tree, "x.yaml"))
            run = with_random_model(run, {"positions": "rotary", "num_encoder_layers": 1})
            write_run(folder / "run", run.config, run.tokenizers, run.model, run.max_tokens)

        return once(f"argos-{algorithm}-{len(tags)}", write) / "run"

    return make


@pytest.fixture
def export_package(mt):
    """A function that exports a run as `p.argosmodel`: (exit status, standard output, standard error)."""

    def write(run, *options):
        return mt("export", "--run", run, "--format", "argos", "--output", "p.argosmodel", *options)

    return write


def content(path):
    """Files of a package by their name inside its folder, and the name of the folder."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        (folder,) = {name.partition("/")[0] for name in names}
        return {name.partition("/")[2]: archive.read(name) for name in names}, folder


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_package_has_the_model_the_pieces_and_the_licence(export_package, run_for_argos, tmp_path, algorithm):
    path = run_for_argos(algorithm)
    run = TrainedRun.load(path)
    status, out, err = export_package(path, "--license", "cc-by-4.0", "--package-version", "1.2")
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
    for line in LINES:  # The model of the source decodes the target, as Argos Translate does.
        pieces = run.tokenizers[1].pieces(line)
        assert processor.decode_pieces(pieces).replace("▁", " ").removeprefix(" ") == run.tokenizers[1].join(pieces)


def test_the_tag_of_the_chosen_direction_begins_each_source(export_package, run_for_argos, tmp_path):
    parts = [{"files": ["a", "b"], "languages": pair, "tag": f"<2{pair[1]}>"} for pair in (("en", "it"), ("it", "en"))]
    run = run_for_argos(tags=("<2it>", "<2en>"), source="en", target="it", train=parts, valid=parts, test=None)
    status, _, err = export_package(run, "--to", "fr")
    assert status == 2 and "en-it (<2it>), it-en (<2en>)" in err
    status, _, err = export_package(run, "--to", "en")
    assert status == 0, err
    files, folder = content(tmp_path / "p.argosmodel")
    assert folder == "translate-it_en-1_0"
    config = json.loads(files["model/config.json"])
    assert config["add_source_bos"] is True and config["bos_token"] == "<2en>"


def test_the_direction_of_a_package_is_the_one_asked_for(tiny_tree):
    parts = [
        {"files": ["a.en", "a.zh"], "languages": ["en", language], "tag": f"<2{language}>"}
        for language in ("zh-Hans", "zh-Hant")
    ]
    tiny_tree["corpus"] = {"source": "en", "target": "zh-Hans", "train": parts, "valid": parts}
    two = parse_config(tiny_tree, "x.yaml").corpus
    one = two.model_copy(update={"train": two.train[:1]})
    assert choose_direction(two, None, None).tag == two.tagging.default
    possible = (
        (two, None, "zh-Hans", "zh-Hans"),
        (two, None, "zh_Hant", "zh-Hant"),
        (one, "eng", "zh", "zh-Hans"),
        (two, None, "<2zh-Hant>", "zh-Hant"),
        (two, None, "zh", "zh-Hans"),
        (two, None, "zh-TW", "zh-Hant"),
    )
    for corpus, source, asked, target in possible:
        direction = choose_direction(corpus, source, asked)
        assert (direction.languages, direction.tag) == (("en", target), f"<2{target}>")
    for corpus, source, asked in ((two, "en", None), (one, None, "zh-Hant")):
        with pytest.raises(InputError, match="direction"):
            choose_direction(corpus, source, asked)


def test_varieties_have_the_codes_of_argos():
    codes = {
        "zho_Hant": "zt",
        "zh-TW": "zt",
        "zh_HK": "zt",
        "zho_Hans": "zh",
        "zh": "zh",
        "pt_BR": "pb",
        "por_Latn": "pt",
    }
    codes |= {"nob_Latn": "nb", "eng_Latn": "en"}
    for language, code in codes.items():
        assert Package(Direction((language, "it"), None)).codes == (code, "it")


def test_what_cannot_be_written_is_refused_with_one_line(mt, run_for_argos, tmp_path):
    run = run_for_argos()
    (tmp_path / "there.argosmodel").write_text("mine")
    for options, named in (
        (("--output", "p.zip"), "p.zip"),
        (("--output", "there.argosmodel"), "there.argosmodel"),
        (("--output", "p.argosmodel", "--quantization", "int3"), "--quantization"),
        (("--output", "none/p.argosmodel"), "none/p.argosmodel"),
    ):
        status, out, err = mt("export", "--run", run, "--format", "argos", *options)
        assert status in (1, 2) and out == "" and err.count("\n") == 1 and named in err
    assert [path.name for path in tmp_path.iterdir()] == ["there.argosmodel"]
    assert (tmp_path / "there.argosmodel").read_text() == "mine"


def test_the_network_splits_sentences_in_minisbd_as_mt_does(tmp_path):
    for text, expected in SPLIT.items():
        assert [sentence for sentence, _ in sentences_of(text)] == expected
    minisbd = pytest.importorskip("minisbd", reason="minisbd is not installed")
    (tmp_path / "rules.onnx").write_bytes(sentence_splitter())
    splitter = minisbd.SBDetect(str(tmp_path / "rules.onnx"), use_gpu=False)
    for text, expected in SPLIT.items():
        assert splitter.sentences(text) == expected
    for text in ("", "   ", "a", "a" * 2500 + ". B " + "c " * 900):
        assert "".join("".join(splitter.sentences(text)).split()) == "".join(text.split())


def test_an_export_to_ctranslate2_carries_sentencepiece_models(mt, run_for_argos, tmp_path):
    import ctranslate2

    path = run_for_argos("unigram")
    run = TrainedRun.load(path)
    assert mt("export", "--run", path, "--output", "served")[0] == 0
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "served" / f"{side}.model"))
        for side in ("source", "target")
    )
    assert source.encode(LINES, out_type=str) == [run.tokenizers[0].pieces(line) for line in LINES]
    translator = ctranslate2.Translator(str(tmp_path / "served"))
    (result,) = translator.translate_batch([source.encode(LINES[0], out_type=str)], beam_size=1, max_decoding_length=9)
    ids = [target.piece_to_id(piece) for piece in result.hypotheses[0]]
    assert run.tokenizers[1].tokens(ids) == result.hypotheses[0] and isinstance(target.decode(ids), str)
