"""`mt init --for`: each config that it writes trains a model that the program takes."""

import random

import pytest
import yaml

from mt_cli.config.loading import load_config
from mt_cli.features.exchange.destinations import DESTINATIONS

ENGLISH = ["the", "dog", "and", "a", "cat", "two", "are", "in", "on", "with", "house", "who", "man", "street", "red"]
GERMAN = ["der", "Hund", "und", "eine", "Katze", "zwei", "in", "am", "auf", "mit", "Haus", "wer", "Mann", "Weg", "rot"]
CHINESE = list("这狗和一猫二是内上用房谁男路红")
THAI = ["คน", "หมา", "และ", "หนึ่ง", "แมว", "สอง", "เป็น", "ใน", "บน", "กับ", "บ้าน", "ใคร", "ชาย", "ถนน", "แดง"]
TINY = (
    *("model.d_model=16", "model.num_heads=2", "model.d_ff=16", "model.num_encoder_layers=1"),
    *("model.num_decoder_layers=1", "training.max_steps=2", "training.max_epochs=null", "training.batch_tokens=2000"),
    *("training.tune_decoding=false", "training.num_pictures=0", "training.precision=fp32", "decoding.beam_size=1"),
    "decoding.max_length=8",
)
PROGRAMS = [program for program in DESTINATIONS if program != "bundle"]


def write(folder, words, number=90, name="train", code="de", joint=" ", addition=""):
    chooser, sides = random.Random(number), ([], [])
    for line in range(number):
        chosen = [chooser.randrange(len(ENGLISH)) for _ in range(5 + line % 7)]
        sides[0].append(" ".join(ENGLISH[place] for place in chosen) + addition.format(line))
        sides[1].append(joint.join(words[place] for place in chosen) + addition.format(line))
    for side, lines in zip(("en", code), sides, strict=True):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


KINDS = {
    "few pairs": lambda folder: write(folder, GERMAN),
    "more pairs": lambda folder: write(folder, GERMAN, 4_000),
    "protected spans": lambda folder: write(folder, GERMAN, addition=" <b>%s</b> {}"),
    "Chinese": lambda folder: write(folder, CHINESE, code="zh", joint=""),
    "Thai": lambda folder: write(folder, THAI, code="th", joint=""),
    "odd characters": lambda folder: write(folder, GERMAN, addition=" \U0001f600 e\u0301 \u00ad\ufb01 {}"),
}
DEFAULT = ("protected spans", "Chinese")


@pytest.fixture
def train_and_export(mt, tmp_path):
    """A function that trains a config for two steps and exports the run to a program."""

    def run(name, program, settings=TINY):
        options = (part for each in settings for part in ("--set", each))
        status, _, err = mt("train", "--config", f"{name}.yaml", *options)
        assert status == 0, err
        (line,) = [line for line in err.splitlines() if line.startswith("  exports to  ")]
        assert program in line.partition(";")[0]
        output = f"{name}.argosmodel" if program == "argos" else f"{name}_{program}"
        status, _, err = mt("export", "--run", f"runs/{name}", "--format", program, "--output", output)
        assert status == 0 and "sentences are translated as by mt" in err, err

    return run


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "kind", [kind if kind in DEFAULT else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_a_config_for_a_program_trains_a_model_that_it_takes(mt, train_and_export, tmp_path, kind, program):
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    KINDS[kind](tmp_path)
    files = [path.name for path in sorted(tmp_path.glob("train.*"), key=lambda path: path.suffix != ".en")]
    status, _, err = mt("init", "--files", *files, "--for", program, "--name", "new")
    assert status == 0, err
    text = (tmp_path / "new.yaml").read_text(encoding="utf-8")
    assert f"`mt init --for {program}`" in text.replace("\n# ", " ")
    assert (f"for {program}; otherwise" in text) == (program != "ctranslate2")
    if kind == "protected spans":
        assert load_config(tmp_path / "new.yaml").corpus.has_protection == DESTINATIONS[program].protects_spans
        assert ("does not keep spans as they are" in text) != DESTINATIONS[program].protects_spans
    train_and_export("new", program)


@pytest.mark.parametrize(
    ("program", "obstacle", "instead"),
    [
        ("huggingface", "model.positions: rotary", "model.positions=sinusoidal"),
        ("argos", "tokenizer.spacing: lossless", "tokenizer.spacing=sentencepiece"),
    ],
)
def test_a_child_of_several_languages_is_refused_for_a_program_that_cannot_hold_its_parent(
    mt, train_and_export, tmp_path, program, obstacle, instead
):
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    write(tmp_path, GERMAN)
    write(tmp_path, CHINESE, name="other", code="zh", joint="")
    corpus = {"source": "en", "target": "de", "tag": "to_target", "both_directions": True}
    corpus |= {"train": {"files": ["train.en", "train.de"]}, "valid": {"fraction": 0.1}}
    tree = {"name": "parent", "corpus": corpus, "preset": "tiny"}
    (tmp_path / "parent.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    train = ("train", "--config", "parent.yaml", *(part for each in TINY for part in ("--set", each)))
    command = ("init", "--files", "other.en", "other.zh", "--for", program, "--begin-with")
    assert mt(*train)[0] == 0
    status, _, err = mt(*command, "runs/parent", "--name", "child")
    assert status == 2 and f"--for {program}: runs/parent has {obstacle}" in err, err
    assert not (tmp_path / "child.yaml").exists()
    status, _, err = mt(*train, "--set", "name=fits", "--set", instead)
    assert status == 0, err
    status, _, err = mt(*command, "runs/fits", "--name", "child")
    assert status == 0, err
    train_and_export("child", program, [setting for setting in TINY if not setting.startswith("model.")])
    assert load_config(tmp_path / "runs/child/config.yaml").corpus.has_target_tags


def test_a_program_is_named_and_an_example_is_for_none(mt):
    status, _, err = mt("init", "--files", "a", "b", "--for", "onnx")
    assert status == 2 and "--for onnx: use " in err
    status, _, err = mt("init", "--example", "quickstart", "--for", "huggingface")
    assert status == 2 and "--example" in err
