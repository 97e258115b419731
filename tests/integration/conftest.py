import random
import sys

import pytest
import yaml

from mt_cli import cli

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Four hundred training pairs and forty test pairs: words, and the same words in capitals."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(1)
    sentences: dict[str, None] = {}
    while len(sentences) < 440:
        sentences[" ".join(generator.choices(WORDS, k=generator.randrange(1, 6))) + "."] = None
    for name, some in (("train", list(sentences)[:400]), ("test", list(sentences)[400:])):
        write_lines(folder / f"{name}.en", some)
        write_lines(folder / f"{name}.xx", [sentence.upper() for sentence in some])
    return folder


@pytest.fixture
def tiny_tree(corpus):
    return {
        "name": "tiny",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]},
            "valid": {"fraction": 0.1},
            "test": {"files": [str(corpus / "test.en"), str(corpus / "test.xx")]},
        },
        "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"max_epochs": 2, "batch_tokens": 200, "warmup_steps": 2, "log_every_steps": 1, "device": "cpu"},
        "decoding": {"beam_size": 2},
    }


@pytest.fixture
def tiny_config(tiny_tree, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return path


@pytest.fixture
def mt(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """A finished tiny run."""
    from pathlib import Path

    from mt_cli.config.loading import parse_config
    from mt_cli.experiment.run import train

    files = {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]}
    tree = {
        "name": "tiny",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": files,
            "valid": {"fraction": 0.1},
            "test": {"files": [str(corpus / "test.en"), str(corpus / "test.xx")]},
            "max_tokens": 6,
        },
        "model": {
            "d_model": 32,
            "d_ff": 64,
            "num_heads": 2,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "dropout": 0.0,
        },
        "training": {
            "max_epochs": 30,
            "batch_tokens": 200,
            "warmup_steps": 20,
            "learning_rate": 0.01,
            "device": "cpu",
            "schedule": "linear",
            "validate_every_steps": 100,
        },
    }
    runs = Path(tmp_path_factory.mktemp("runs"))
    train(parse_config(tree, "fixture"), runs)
    return runs / "tiny"
