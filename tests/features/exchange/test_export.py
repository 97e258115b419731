import io
import json
import os
import re
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.sections import ModelConfig, TokenizerConfig
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import InputError
from mt_cli.features.exchange.bundle import export_bundle
from mt_cli.features.exchange.ctranslate2 import export_ctranslate2
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import BYTES, EOS_ID, SOS_ID
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.translation.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

SENTENCES = ["one two.", "three four five.", "ten."]
both_formats = pytest.mark.parametrize("kind", ["bundle", "ctranslate2"])


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "served"
    export_ctranslate2(TrainedRun.load(trained), folder, "float32", SENTENCES)
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_order": "post", "activation": "gelu"},
        {"norm_order": "post", "final_norm": True},
        {"activation": "swiglu", "qkv_bias": False, "tie_embeddings": "none"},
        {"activation": "silu", "norm_order": "post", "output_bias": True, "positions": "rotary"},
        {"positions": "learned", "max_positions": 40, "num_decoder_layers": 1},
    ],
)
def test_every_kind_of_model_gives_the_same_probabilities_in_ctranslate2(trained, with_random_model, tmp_path, options):
    run = with_random_model(TrainedRun.load(trained), options)
    agreement = export_ctranslate2(run, tmp_path / "model", "float32", SENTENCES)
    assert agreement.difference < 1e-4
    assert agreement.num_sentences == agreement.num_equal == 3


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_a_trained_run_is_exported_and_translates_the_same(mt, trained, tmp_path, quantization):
    command = ("export", "--run", trained, "--format", "ctranslate2", "--output", "served")
    status, out, err = mt(*command, "--quantization", quantization)
    assert (status, out) == (0, "") and "of 5 sentences" in err
    source = TrainedRun.load(trained).tokenizers[0]
    engine = ctranslate2.Translator(str(tmp_path / "served"), device="cpu")
    results = engine.translate_batch([source.tokens(ids) for ids in source.encode(SENTENCES)], beam_size=2)
    assert " ".join(results[0].hypotheses[0]).startswith("ONE TWO")
    assert mt(*command)[0] == 2


def assert_equal_scores(ours, exported, lines):
    """Compare the scores that two translators give to lines as translations of themselves; return ours."""
    scores = ours.score(lines, lines)
    for score, their_score in zip(scores, exported.score(lines, lines), strict=True):
        assert score.tokens == their_score.tokens
        assert score.token_scores == pytest.approx(their_score.token_scores, abs=1e-3)
    return scores


def test_bytes_and_languages_reach_the_exported_model(trained, tmp_path):
    run = TrainedRun.load(trained)
    subwords = TokenizerConfig(algorithm="bpe", vocab_size=300)
    pieces = train_tokenizer(["one two three.", "今夜は雨です。"], subwords)
    config = ModelConfig(d_model=32, d_ff=64, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model, tokenizers = Transformer(config, pieces.vocab_size, pieces.vocab_size).eval(), (pieces, pieces)
    ours = Translator(TransformerEngine(model), tokenizers, run.config.decoding, 20)
    corpus = run.config.corpus.model_copy(update={"source": "ja", "target": "en"})
    config = run.config.model_copy(update={"model": config, "corpus": corpus, "tokenizer": subwords})
    lines = ["字字 é <0x41> ▁", "\x10\x11", "今夜は字。" * 9]
    random_run = replace(run, model=model, tokenizers=tokenizers, config=config, max_tokens=20)
    export_ctranslate2(random_run, tmp_path / "served", "float32", lines)
    exported = Translator.load(tmp_path / "served", "cpu", engine="ctranslate2")
    for score in assert_equal_scores(ours, exported, lines):
        assert any(token in BYTES for token in score.tokens)
    assert exported.translate(["one"], prefix="字é▁", max_length=20)[0].startswith("字é▁")
    (item,) = exported.translate_fully(lines[2:], unk="keep", beam_size=1)
    assert len(item.segments) > 1 and item.text.count(" ") >= len(item.segments) - 1


def test_the_exported_model_translates_and_scores_like_the_run(mt, trained, served, corpus):
    files = ("--source", corpus / "test.en", "--reference", corpus / "test.xx")
    status, out, _ = mt("evaluate", "--run", served, "--engine", "ctranslate2", *files, "--json")
    assert status == 0 and json.loads(out)["bleu"]["score"] > 90
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    ours, exported = Translator.load(trained, "cpu", "fp32"), Translator.load(str(served), "cpu", engine="ctranslate2")
    assert sum(map(str.__eq__, ours.translate(lines), exported.translate(lines))) >= 39
    for length_penalty in (0.0, 1.0):
        options = {"beam_size": 4, "length_penalty": length_penalty}
        results = [translator.translate_fully(SENTENCES, **options) for translator in (ours, exported)]
        for our_result, their_result in zip(*results, strict=True):
            assert our_result.text == their_result.text
            assert our_result.score == pytest.approx(their_result.score, abs=1e-4)
    assert_equal_scores(ours, exported, SENTENCES)


def test_exported_and_imported_models_split_and_copy_as_the_run(mt, trained, served, tmp_path):
    export_bundle(replace(TrainedRun.load(trained), max_tokens=3), tmp_path / "bundle")
    assert mt("import", "bundle", "--output", "runs/again")[0] == 0
    translators = [Translator.load(trained, "cpu", "fp32"), Translator.load(served, "cpu", engine="ctranslate2")]
    again = Translator.load("runs/again")
    assert [(model.max_tokens, model.most_tokens) for model in (*translators, again)] == [(6, 6), (6, 6), (3, 6)]
    for line in ("—", "👍", "\u200b", "one two. 👍", "x" * 300, "one two three. " * 5):
        ours, exported = (model.translate_fully([line], with_details=True, beam_size=1)[0] for model in translators)
        assert ours.text == exported.text and len(ours.segments) == len(exported.segments)
        assert ours.details.tokens == exported.details.tokens


def test_a_translation_by_the_exported_model_does_not_depend_on_the_other_lines(trained, served):
    lines = ["one", "two three", "one two three four five six seven eight nine ten eleven twelve " * 2]
    translator = Translator.load(served, engine="ctranslate2")
    options = {"max_length_ratio": 0.2, "min_length": 11, "beam_size": 1}  # At least as long as the limit of a word.
    together = translator.translate(lines, **options)
    assert together == [translator.translate([line], **options)[0] for line in lines]


@pytest.mark.parametrize("options", [{"prefix": "one two"}, {"max_length": 3}, {"prefix": "two", "beam_size": 1}])
def test_scores_of_the_exported_model_count_the_tokens_that_ours_do(trained, served, options):
    ours, exported = Translator.load(trained, "cpu", "fp32"), Translator.load(str(served), "cpu", engine="ctranslate2")
    for one, other in zip(*(model.translate_fully(SENTENCES, **options) for model in (ours, exported)), strict=True):
        if one.text == other.text:
            assert one.score == pytest.approx(other.score, abs=1e-3)


def test_too_many_tokens_for_the_exported_model_are_an_input_error(served):
    translator = Translator.load(served, engine="ctranslate2")
    with pytest.raises(InputError, match="positions"):
        translator.score(["one"], ["two " * 3000])
    with pytest.raises(InputError, match="positions"):
        translator.translate(["one"], prefix="two " * 3000)


@pytest.mark.parametrize(("kind", "name"), [("bundle", "model.safetensors"), ("ctranslate2", "model.bin")])
def test_weights_that_changed_after_the_export_are_refused(mt, trained, tmp_path, kind, name):
    assert mt("export", "--run", trained, "--format", kind, "--output", "out")[0] == 0
    path = tmp_path / "out" / name
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    use = {"bundle": ("import", "out", "--output", "runs/b"), "ctranslate2": ("translate", "--run", "out", "one")}[kind]
    status, _, err = mt(*use, *(("--engine", kind) if kind == "ctranslate2" else ()))
    assert status == 2 and "has changed since it was exported" in err


def test_options_of_search_reach_the_exported_model(mt, served):
    def translation(*options):
        status, out, _ = mt("translate", "one two.", "--run", served, "--engine", "ctranslate2", *options)
        assert status == 0
        return out

    assert translation("--prefix", "TEN").startswith("TEN")
    assert translation("--n-best", "2", "--beam-size", "1").startswith("ONE TWO.\n")
    assert len(translation("--set", "decoding.max_length=1").split()) == 1
    assert len(json.loads(translation("--set", "decoding.min_length=6", "--json"))["tokens"]) >= 7
    assert translation("--sample", "--seed", "3") == translation("--sample", "--seed", "3")
    row = json.loads(translation("--json"))
    assert row["tokens"][-1] == "[EOS]"
    assert translation("--unk", "keep")


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 0), (2, 0), (4, 2)])
def test_an_export_aligns_words_by_the_penultimate_layer(trained, tmp_path, num_layers, layer):
    run = TrainedRun.load(trained)
    torch.manual_seed(num_layers)
    config = run.config.model.model_copy(update={"num_decoder_layers": num_layers, "num_heads": 2})
    model = Transformer(config, *(tokenizer.vocab_size for tokenizer in run.tokenizers)).eval()
    for weight in model.parameters():
        weight.data *= 3  # Far from even attention.
    random_run = replace(run, model=model, config=run.config.model_copy(update={"model": config}))
    export_ctranslate2(random_run, tmp_path / "served", "float32", ["one two."])
    exported = Translator.load(tmp_path / "served", "cpu", engine="ctranslate2")
    pairs = [([5, 6, 7, 8], [9, 10, 5]), ([8], [6, 7])]
    for (source, target), weights in zip(pairs, exported.engine.attend(pairs), strict=True):
        cross = model.read(torch.tensor([[*source, EOS_ID]]), torch.tensor([[SOS_ID, *target]]))[1].cross
        means = [weights_BHTS[0].float().mean(dim=0)[:-1, :-1] for weights_BHTS in cross]
        close = [torch.allclose(weights[:-1, :-1], mean, atol=1e-4) for mean in means]
        assert close == [number == layer for number in range(num_layers)]


def test_alignments_of_an_export_are_written(mt, served, tmp_path):
    status, out, err = mt("translate", "ten nine.", *SERVED[:3], served, "--alignment", "words")
    assert status == 0, err
    pairs = [tuple(map(int, pair.split("-"))) for pair in (tmp_path / "words").read_text(encoding="utf-8").split()]
    assert pairs and all(source < 2 and target < len(out.split()) for source, target in pairs)


SERVED = ("--engine", "ctranslate2", "--run", "served")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("translate", "one.", *SERVED, "--attention", "new.png"), "--engine mt"),
        (("translate", "one.", *SERVED, "--precision", "bf16"), "precision"),
        (("translate", "one.", *SERVED, "--checkpoint", "last"), "checkpoint"),
        (("translate", "one.", *SERVED, "--run", "served"), "ensemble"),
        (("translate", "one.", "--engine", "ctranslate2", "--run", "run"), "run: "),
        (("translate", "one.", "--engine", "ctranslate2", "--run", "none"), "none"),
        (("translate", "one.", "--run", "served", "--engine", "onnx"), "ctranslate2"),
        (("evaluate", *SERVED), "--source and --reference"),
        (("export", "--run", "run", "--output", "new", "--format", "onnx"), "--format"),
        (("export", "--run", "run", "--output", "new", "--quantization", "int4"), "--quantization"),
        *(
            (("export", "--run", "run", "--output", "new", "--format", "bundle", *option), option[0])
            for option in (("--quantization", "int8"), ("--license", "mit"))
        ),
    ],
)
def test_what_cannot_be_exported_or_done_with_an_export_is_named(mt, trained, served, tmp_path, command, name):
    (tmp_path / "served").symlink_to(served)
    (tmp_path / "run").symlink_to(trained)
    status, _, err = mt(*command)
    assert status == 2 and name in err and not list(tmp_path.glob("new*"))


def test_a_bundle_has_all_files_that_another_program_needs(mt, trained, tmp_path):
    assert mt("export", "--run", trained, "--format", "bundle", "--output", "bundle")[0] == 0
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert names == {"model.safetensors", "model.json", "tokenizer.source.json", "tokenizer.target.json"}
    description = json.loads((tmp_path / "bundle/model.json").read_text(encoding="utf-8"))
    assert description["model"]["d_model"] == 32
    assert description["special_tokens"] == {"[PAD]": 0, "[UNK]": 1, "[SOS]": 2, "[EOS]": 3}


def program_of(root, page, words):
    """What the Python example with some words in a page defines."""
    text, program = (root / page).read_text(encoding="utf-8"), {}
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if words in code)
    exec(compile(code, page, "exec"), program)
    return program


def test_the_programs_in_the_docs_translate_as_mt_does(mt, trained, served, root, tmp_path):
    (tmp_path / "served").symlink_to(served)
    assert program_of(root, "docs/export.md", "import ctranslate2")["result"].hypotheses
    run = TrainedRun.load(trained)
    texts = ["one two three four five six seven eight nine ten.", "ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT NINE TEN."]
    pieces = train_tokenizer(texts, TokenizerConfig())
    torch.manual_seed(3)
    sizes = {"d_model": 32, "d_ff": 48, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 1}
    options = {"positions": "rotary", "activation": "swiglu", "qkv_bias": False, "tie_embeddings": "all"}
    config = ModelConfig(**sizes, **options)
    model = Transformer(config, pieces.vocab_size, pieces.vocab_size)
    for name, weight in model.named_parameters():  # Far from symmetric, so that translations have different words.
        if weight.dim() == 1:
            weight.data += 0.3 * torch.randn_like(weight)
        elif "table" not in name:
            weight.data *= 3
    corpus = run.config.corpus.model_copy(update={"max_tokens": 200})
    changes = {"model": config, "tokenizer": TokenizerConfig(shared=True), "corpus": corpus}
    write_run(tmp_path / "run", run.config.model_copy(update=changes), (pieces, pieces), model, 200)
    lines = [" ".join(["one two three.", "five six."] * times) for times in range(1, 5)] + ["eight é ten."]
    command = ("translate", "--run", "run", "--beam-size", "1", "--unk", "keep", *lines)
    status, out, err = mt(*command, "--precision", "fp32", "--device", "cpu")
    assert status == 0 and "segments" not in err, err
    assert mt("export", "--run", "run", "--format", "bundle", "--output", "bundle")[0] == 0
    program = program_of(root, "docs/model_formats.md", "model.safetensors")
    assert [program["translate"](line) for line in lines] == out.splitlines()
    assert len(set(out.split())) > 4


@pytest.fixture
def places(trained, tmp_path):
    """A run and paths of all kinds in the folder of the test."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("kept")
    (tmp_path / "link to folder").symlink_to("folder")
    (tmp_path / "dangling link").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    return everything_in(tmp_path)


def everything_in(folder):
    return sorted((str(path), path.is_symlink() or path.is_dir() or path.read_bytes()) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "output",
    [
        *("file", "file/x", "folder", "folder/", "link to folder", "dangling link", ".", "..", "/", "", "new/.."),
        *("x" * 300, "x" * 300 + "/y", "/proc/x", "/dev/null", "run", "run/config.yaml/x", "loop/x"),
    ],
)
def test_an_output_that_cannot_be_a_new_folder_is_named(mt, places, tmp_path, output):
    status, _, err = mt("export", "--run", "run", "--format", "bundle", "--output", output)
    assert status == 2 and err.startswith(f"mt: {Path(output)}: ")
    assert everything_in(tmp_path) == places


@both_formats
@pytest.mark.parametrize("output", ["plain", "a/b/c", "run/inside", os.fsdecode(b"caf\xe9"), "link to folder/new"])
def test_an_export_is_in_its_folder_and_nowhere_else(mt, places, tmp_path, monkeypatch, kind, output):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert mt("export", "--run", "run", "--format", kind, "--output", output)[0] == 0
    (made,) = tmp_path.rglob(Path(output).name)
    added = {path for path, _ in everything_in(tmp_path)} - {path for path, _ in places}
    assert all(path.startswith(str(made)) or str(made).startswith(path) for path in added)
    mode = (tmp_path / "folder").stat().st_mode & 0o777
    assert made.stat().st_mode & 0o777 == mode
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {mode & 0o666}


@both_formats
@pytest.mark.parametrize("num_bytes", [0, 20_000])
def test_a_full_disk_leaves_nothing_of_an_export(mt, trained, tmp_path, kind, num_bytes):
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, former[1]))
    try:
        status, _, err = mt("export", "--run", trained, "--format", kind, "--output", "a/b/model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert status == 1 and "a/b/model: " in err
    assert everything_in(tmp_path) == []


def test_an_export_that_is_killed_leaves_its_name_free(mt, run_together, trained, tmp_path):
    [(status, *_)] = run_together(
        "from pathlib import Path\n"
        "from mt_cli.checkpoint.trained import TrainedRun; from mt_cli.features.exchange import bundle\n"
        "bundle.describe = lambda *options: os.kill(os.getpid(), 9)\n"
        f"bundle.export_bundle(TrainedRun.load(Path({str(trained)!r})), Path('folder/model'))",
        number=1,
    )
    assert status == -signal.SIGKILL
    (left,) = (tmp_path / "folder").iterdir()
    assert left.name.startswith("model.unfinished-")
    assert mt("export", "--run", trained, "--format", "bundle", "--output", "folder/model")[0] == 0
    assert (tmp_path / "folder" / "model" / "model.json").is_file() and left.is_dir()


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
@pytest.mark.parametrize("name", ["model.json", "model.bin", "tokenizer.source.json", "config.json"])
def test_a_served_model_is_made_of_regular_files(mt, served, tmp_path, plant, name):
    path = shutil.copytree(served, tmp_path / "served") / name
    path.unlink()
    plant(path)
    status, _, err = mt("translate", "one.", *SERVED)
    assert status == 2 and "not a file" in err


@pytest.mark.parametrize("key", [None, "tags", "max_tokens", "decoding", "source_language", "target_language"])
def test_a_description_with_other_values_is_refused(mt, served, tmp_path, key):
    path = shutil.copytree(served, tmp_path / "served") / "model.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    fitting = {"tags": [], "decoding": {}, "source_language": "x", "target_language": "x"}
    for value in (None, [], "x", -1, 0, 10**400, float("inf"), float("nan"), {}, [1], {"beam_size": -1}):
        if fitting.get(key) != value or value is None:
            path.write_text(json.dumps(value if key is None else tree | {key: value}), encoding="utf-8")
            status, _, err = mt("translate", "one.", *SERVED)
            assert status == 2 and f"served/model.json: cannot be used: {key or ''}" in err, value
