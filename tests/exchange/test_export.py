"""Exports to CTranslate2 and bundles: the same translations, files of the right kind, refusals without a trace."""

import io
import json
import os
import re
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import TokenizerConfig
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import InputError
from mt_cli.exchange.bundle import export_bundle
from mt_cli.exchange.ctranslate2 import export_ctranslate2
from mt_cli.tokenizer.special_tokens import BYTES, EOS_ID, SOS_ID
from mt_cli.tokenizer.vocabulary_training import train_tokenizer
from mt_cli.translation.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

SENTENCES = ["one two.", "three four five.", "ten."]
SERVED = ("--engine", "ctranslate2", "--run", "served")
both_formats = pytest.mark.parametrize("kind", ["bundle", "ctranslate2"])


@pytest.fixture
def ours(trained):
    """Translator of the run."""
    return Translator.load(trained, "cpu", "fp32")


@pytest.fixture
def exported(served):
    """Translator of the export of the run."""
    return Translator.load(served, "cpu", engine="ctranslate2")


@pytest.mark.parametrize(
    "options",
    [
        {"norm_order": "post", "activation": "gelu"},
        {"norm_order": "post"},
        {"activation": "swiglu", "qkv_bias": False, "tie_embeddings": "none"},
        {"activation": "silu", "norm_order": "post", "output_bias": True, "positions": "rotary"},
    ],
)
def test_every_model_gives_the_same_probabilities_in_ctranslate2(trained, with_random_model, tmp_path, options):
    run = with_random_model(TrainedRun.load(trained), options)
    agreement = export_ctranslate2(run, tmp_path / "model", "float32", SENTENCES)
    assert agreement.difference < 1e-4
    assert agreement.num_sentences == agreement.num_equal == 3


def test_an_export_with_integers_never_replaces_a_folder(mt, trained, tmp_path):
    command = ("export", "--run", trained, "--format", "ctranslate2", "--output", "served", "--quantization", "int8")
    status, out, err = mt(*command)
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


def test_bytes_and_languages_reach_the_exported_model(trained, with_random_model, tmp_path):
    run, subwords = TrainedRun.load(trained), TokenizerConfig(algorithm="bpe", vocab_size=300)
    pieces = train_tokenizer(["one two three.", "今夜は雨です。"], subwords)
    corpus = run.config.corpus.model_copy(update={"source": "ja", "target": "en"})
    config = run.config.model_copy(update={"corpus": corpus, "tokenizer": subwords})
    run = with_random_model(replace(run, tokenizers=(pieces, pieces), config=config, max_tokens=20), {})
    lines = ["字字 é <0x41> ▁", "\x10\x11", "今夜は字。" * 9]
    export_ctranslate2(run, tmp_path / "served", "float32", lines)
    exported = Translator.load(tmp_path / "served", "cpu", engine="ctranslate2")
    ours = Translator(TransformerEngine(run.model.eval()), run.tokenizers, run.config.decoding, 20)
    for score in assert_equal_scores(ours, exported, lines):
        assert any(token in BYTES for token in score.tokens)
    (item,) = exported.translate_fully(["one"], prefix="字é▁", with_details=True)
    assert "".join(item.details.tokens).startswith("".join(pieces.pieces("字é▁")))
    (item,) = exported.translate_fully(lines[2:], unk="keep", beam_size=1)
    assert len(item.segments) > 1 and item.text.count(" ") >= len(item.segments) - 1


def test_the_exported_model_translates_and_scores_like_the_run(mt, ours, exported, served, trained, corpus):
    files = ("--source", corpus / "test.en", "--reference", corpus / "test.xx", "--as-lines")
    status, out, _ = mt("evaluate", "--run", served, "--engine", "ctranslate2", *files, "--json")
    of_run = json.loads(mt("evaluate", "--run", trained, *files, "--json")[1])
    assert status == 0 and json.loads(out)["bleu"]["score"] > 90
    assert json.loads(out)["chrf"] == of_run["chrf"], "with the same signature"
    results = [translator.translate_fully(SENTENCES, beam_size=4) for translator in (ours, exported)]
    for one, other in zip(*results, strict=True):
        assert one.text != other.text or one.score == pytest.approx(other.score, abs=1e-3)
    assert_equal_scores(ours, exported, SENTENCES)


def test_an_export_splits_and_copies_as_the_run(ours, exported):
    assert [(model.max_tokens, model.most_tokens) for model in (ours, exported)] == [(6, 6), (6, 6)]
    for line in ("—", "👍", "\u200b", "one two. 👍", "x" * 300, "one two three. " * 5):
        one, other = (model.translate_fully([line], with_details=True, beam_size=1)[0] for model in (ours, exported))
        assert one.text == other.text and len(one.segments) == len(other.segments)
        assert one.details.tokens == other.details.tokens


def test_translations_of_an_export_do_not_depend_on_other_lines(exported):
    lines = ["one", "two three", "one two three four five six seven eight nine ten eleven twelve " * 2]
    options = {"max_length_ratio": 0.2, "beam_size": 1}
    together = exported.translate(lines, **options)
    assert together == [exported.translate([line], **options)[0] for line in lines]


def test_too_many_tokens_for_an_export_are_an_input_error(exported):
    with pytest.raises(InputError, match="positions"):
        exported.score(["one"], ["two " * 3000])
    with pytest.raises(InputError, match="positions"):
        exported.translate(["one"], prefix="two " * 3000)


def test_the_digest_of_an_export_is_that_of_its_files(exported, served, tmp_path):
    """So that documents are translated again if one has changed."""
    copy = shutil.copytree(served, tmp_path / "copy")
    assert Translator.load(copy, "cpu", engine="ctranslate2").digest == exported.digest
    content = bytearray((copy / "model.bin").read_bytes())
    content[-5] ^= 1
    (copy / "model.bin").write_bytes(content)
    assert Translator.load(copy, "cpu", engine="ctranslate2").digest != exported.digest


def test_options_of_search_reach_the_exported_model(mt, served, tmp_path):
    def translation(*options):
        status, out, _ = mt("translate", "one two.", "--run", served, "--engine", "ctranslate2", *options)
        assert status == 0
        return out

    assert translation("--prefix", "TEN").startswith("TEN")
    assert translation("--n-best", "2", "--beam-size", "1").startswith("ONE TWO.\n")
    assert translation("--sample", "--seed", "3") == translation("--sample", "--seed", "3")
    assert len(translation("--alignment", "words").split()) == 2
    pairs = [tuple(map(int, pair.split("-"))) for pair in (tmp_path / "words").read_text(encoding="utf-8").split()]
    assert pairs and all(source < 2 and target < 2 for source, target in pairs)


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 0), (4, 2)])
def test_an_export_aligns_words_by_the_penultimate_layer(trained, with_random_model, tmp_path, num_layers, layer):
    run = with_random_model(TrainedRun.load(trained), {"num_decoder_layers": num_layers})
    export_ctranslate2(run, tmp_path / "served", "float32", ["one two."])
    exported = Translator.load(tmp_path / "served", "cpu", engine="ctranslate2")
    pairs = [([5, 6, 7, 8], [9, 10, 5]), ([8], [6, 7])]
    for (source, target), weights in zip(pairs, exported.engine.attend(pairs), strict=True):
        cross = run.model.eval().read(torch.tensor([[*source, EOS_ID]]), torch.tensor([[SOS_ID, *target]]))[1].cross
        mean = cross[layer][0].float().mean(dim=0)[:-1, :-1]
        torch.testing.assert_close(torch.from_numpy(weights)[:-1, :-1], mean, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("translate", "one.", *SERVED, "--precision", "bf16"), "precision"),
        (("translate", "one.", *SERVED, "--run", "served"), "ensemble"),
        (("translate", "one.", "--engine", "ctranslate2", "--run", "run"), "run: "),
        (("evaluate", *SERVED), "--source and --reference"),
        (("export", "--run", "run", "--output", "new", "--quantization", "int4"), "--quantization"),
        (("export", "--run", "run", "--output", "new", "--format", "bundle", "--license", "mit"), "--license"),
    ],
)
def test_what_cannot_be_done_with_an_export_is_named(mt, trained, served, tmp_path, command, named):
    (tmp_path / "served").symlink_to(served)
    (tmp_path / "run").symlink_to(trained)
    status, _, err = mt(*command)
    assert status == 2 and named in err and not (tmp_path / "new").exists()


def test_the_programs_in_the_docs_translate_as_mt_does(trained, served, with_random_model, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "served").symlink_to(served)
    (code,) = re.findall(r"```python\n(.*?)```", (root / "docs/export.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(code, example := {})
    assert example["result"].hypotheses
    options = {"positions": "rotary", "activation": "swiglu", "qkv_bias": False, "num_decoder_layers": 1}
    run = with_random_model(TrainedRun.load(trained), options)
    export_bundle(run, tmp_path / "bundle")
    program = runpy.run_path(str(root / "docs/read_bundle.py"))
    ours = Translator(TransformerEngine(run.model.eval()), run.tokenizers, run.config.decoding, 6)
    for line in ("one two three.", "ten.", "two é five."):
        assert [program["translate"](line)] == ours.translate([line], beam_size=1, unk="keep")


def everything_in(folder):
    return sorted((str(path), path.is_symlink() or path.is_dir() or path.read_bytes()) for path in folder.rglob("*"))


def test_an_output_that_cannot_be_a_new_folder_is_named(mt, trained, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("kept")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "loop").symlink_to("loop")
    before = everything_in(tmp_path)
    for output in ("folder/file", "folder/file/x", "folder/", "link", "", "x" * 300, "/dev/null", "loop/x"):
        status, _, err = mt("export", "--run", trained, "--format", "bundle", "--output", output)
        assert status == 2 and err.startswith(f"mt: {Path(output)}: ")
        assert everything_in(tmp_path) == before


@both_formats
def test_an_export_is_in_its_folder_and_nowhere_else(mt, trained, tmp_path, monkeypatch, kind):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    (tmp_path / "a").mkdir()
    made = tmp_path / os.fsdecode(b"a/b/caf\xe9")
    assert mt("export", "--run", trained, "--format", kind, "--output", made)[0] == 0
    assert {path for path in tmp_path.rglob("*") if made not in path.parents} == {made, *made.parents[:2]}
    mode = (tmp_path / "a").stat().st_mode & 0o777
    assert made.stat().st_mode & 0o777 == mode
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {mode & 0o666}


@pytest.mark.parametrize("key", [None, "tags", "max_tokens", "decoding", "source_language"])
def test_a_description_with_other_values_is_refused(mt, served, tmp_path, key):
    path = shutil.copytree(served, tmp_path / "served") / "model.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    for value in (None, 0, float("inf"), [1], {"beam_size": -1}):
        path.write_text(json.dumps(value if key is None else tree | {key: value}), encoding="utf-8")
        status, _, err = mt("translate", "one.", *SERVED)
        assert status == 2 and "served/model.json: " in err and (key or "") in err, value
