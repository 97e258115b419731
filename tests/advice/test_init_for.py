"""`mt init --for`: each config that it writes trains a model that the program takes."""

import random
import shutil

import pytest

from mt_cli.config.loading import load_config
from mt_cli.exchange.destinations import DESTINATIONS, obstacles, protects_spans

ENGLISH = ["the", "dog", "and", "a", "cat", "two", "are", "in", "on", "with", "house", "who", "man", "street", "red"]
GERMAN = ["der", "Hund", "und", "eine", "Katze", "zwei", "in", "am", "auf", "mit", "Haus", "wer", "Mann", "Weg", "rot"]
CHINESE = list("这狗和一猫二是内上用房谁男路红")
TINY = (
    *("model.d_model=16", "model.num_heads=2", "model.d_ff=16", "model.num_encoder_layers=1"),
    *("model.num_decoder_layers=1", "training.max_steps=2", "training.max_epochs=null", "training.batch_tokens=2000"),
    *("training.tune_decoding=false", "training.precision=fp32", "decoding.beam_size=1"),
    "decoding.max_length_ratio=0.1",
)
PROGRAMS = [program for program in DESTINATIONS if program != "bundle"]


def write(folder, words, code="de", joint=" ", addition=""):
    """Write pairs of English and other words, and return the names of the files."""
    chooser, sides = random.Random(90), ([], [])
    for line in range(90):
        chosen = [chooser.randrange(len(ENGLISH)) for _ in range(5 + line % 7)]
        sides[0].append(" ".join(ENGLISH[place] for place in chosen) + addition.format(line))
        sides[1].append(joint.join(words[place] for place in chosen) + addition.format(line))
    for side, lines in zip(("en", code), sides, strict=True):
        (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return "train.en", f"train.{code}"


KINDS = {
    "protected spans": {"words": GERMAN, "addition": " <b>%s</b> {}"},
    "Chinese": {"words": CHINESE, "code": "zh", "joint": ""},
}
MORE_KINDS = {
    "odd characters": {"words": GERMAN, "addition": " \U0001f600 e\u0301 \u00ad\ufb01 {}"},
}


@pytest.fixture
def init_for(mt, tmp_path):
    """A function that writes a config for a program and some text; returns it, and its text."""

    def run(program, text):
        status, _, err = mt("init", "--files", *write(tmp_path, **text), "--for", program, "--name", "new")
        assert status == 0, err
        return load_config(tmp_path / "new.yaml"), (tmp_path / "new.yaml").read_text(encoding="utf-8")

    return run


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_config_for_a_program_has_what_it_holds(init_for, kind, program):
    config, text = init_for(program, KINDS[kind])
    assert obstacles(config, program) == []
    assert f"`mt init --for {program}`" in text.replace("\n# ", " ")
    assert (f"for {program}; otherwise" in text) == (program != "ctranslate2")
    keeps_spans = protects_spans(program)
    assert config.corpus.has_protection == (keeps_spans and kind == "protected spans")


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS | MORE_KINDS)
def test_a_model_for_a_program_is_exported_to_it(mt, init_for, kind, program):
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    init_for(program, (KINDS | MORE_KINDS)[kind])
    status, _, err = mt("train", "--config", "new.yaml", *(part for each in TINY for part in ("--set", each)))
    assert status == 0, err
    (line,) = [line for line in err.splitlines() if line.startswith("  exports to  ")]
    assert program in line.partition(";")[0]
    output = "new.argosmodel" if program == "argos" else "exported"
    status, _, err = mt("export", "--run", "runs/new", "--format", program, "--output", output)
    assert status == 0 and "are translated as by mt" in err, err


def test_a_parent_that_a_program_cannot_hold_is_refused(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs/parent")
    files = write(tmp_path, CHINESE, code="zh", joint="")
    command = ("init", "--files", *files, "--begin-with", "runs/parent", "--name", "child", "--for")
    status, _, err = mt(*command, "argos")
    assert status == 2 and "--for argos: runs/parent has tokenizer.algorithm: word_level" in err, err
    assert not (tmp_path / "child.yaml").exists()
    status, _, err = mt(*command, "ctranslate2")
    assert status == 0, err
