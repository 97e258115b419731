"""`mt init --begin-with`: configs that begin with a run."""

import shutil

import pytest
import yaml

from mt_cli.advice.decisions import merge_letters
from mt_cli.config.loading import load_config
from mt_cli.corpus.cache import Cache
from mt_cli.tokenizer.special_tokens import UNK_ID

FILES = ("--files", "train.en", "train.it")


def write(folder, **sides):
    """Files of one pair of texts in 60 numbered variants, named by keywords such as `train_en`."""
    for name, text in sides.items():
        lines = [text.format(n) if "{" in text else f"{text} {n}." for n in range(60)]
        (folder / name.replace("_", ".")).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def begin_with(mt, tmp_path):
    """A function that writes `child.yaml`, which begins with a run; returns status, text and messages."""

    def run(parent, *arguments):
        status, _, err = mt("init", *arguments, "--begin-with", parent, "--name", "child")
        path = tmp_path / "child.yaml"
        return status, path.read_text(encoding="utf-8") if path.exists() else "", err

    return run


@pytest.fixture
def parent(mt, tiny_tree, once, tmp_path):
    """The run `runs/parent` for several directions, which replaces a letter, after a step."""

    def make(folder):
        tree = tiny_tree | {"name": "parent", "tokenizer": {"letters": {"ã": "a"}}}
        tree["corpus"] |= {"tag": "to_target", "both_directions": True}
        tree["training"]["max_steps"] = 1
        (folder / "parent.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        status, _, err = mt("train", "--config", folder / "parent.yaml")
        assert status == 0, err
        shutil.move(tmp_path / "runs/parent", folder / "parent")

    shutil.copytree(once("parent_of_init", make) / "parent", tmp_path / "runs/parent")


def test_a_child_has_its_parents_model_and_its_texts_spellings(begin_with, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    for name, mark in (("train", "\u2019"), ("valid", "'")):
        write(tmp_path, **{f"{name}_en": f"one {name} {{}}.", f"{name}_it": f"{name} d{mark}un {{}} l{mark}altro."})
    status, _, err = begin_with("runs/tinny", *FILES)
    assert status == 2 and "--begin-with: runs/tinny" in err and "runs/tiny?" in err
    status, text, err = begin_with("runs/tiny", *FILES)
    assert status == 0 and "init: {run: runs/tiny, vocabulary: extend}" in text, err
    assert "normalize: [apostrophes" in text and "learning_rate" in text and "model:" not in text


@pytest.mark.usefixtures("parent")
def test_letters_of_the_parent_are_kept_beside_new_ones(begin_with, tmp_path):
    for name, letter in (("train", "õ"), ("valid", "ô")):
        texts = [f"l{letter}p k{letter}la r{letter} {name} w{letter}sk{chr(97 + n % 26)} {n}." for n in range(300)]
        (tmp_path / f"{name}.xx").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("".join(f"one {name} {n}.\n" for n in range(300)), encoding="utf-8")
    status, text, err = begin_with("runs/parent", "--files", "train.en", "train.xx", "--target-language", "xx")
    assert status == 0, err
    assert load_config(tmp_path / "child.yaml").tokenizer.letters == {"ã": "a", "õ": "ô"}
    assert "# of runs/parent, and as most text" in text


def test_merged_letters_are_replaced_once():
    for old, new, expected in (
        ({"é": "e"}, {"ã": "â"}, {"é": "e", "ã": "â"}),
        ({"â": "a"}, {"ã": "â"}, {"ã": "â"}),
        ({"ã": "a"}, {"ã": "â"}, {"ã": "â"}),
        ({"õ": "ã"}, {"ã": "â"}, {"õ": "â", "ã": "â"}),
    ):
        assert merge_letters(old, new) == expected


def tokenizers_of_child(folder):
    """Tokenizers that training with `child.yaml` begins with."""
    from mt_cli.checkpoint.parent import adopt

    _, tokenizers, _ = adopt(load_config(folder / "child.yaml"), Cache(folder / "cache"), None, None)
    return tokenizers


@pytest.mark.usefixtures("parent")
def test_a_child_of_several_directions_has_a_tag(begin_with, tmp_path):
    write(tmp_path, train_en="one two", train_it="uno due")
    status, text, err = begin_with("runs/parent", *FILES)
    assert status == 0 and "tag: to_target" in text, err
    assert "<2it>" in tokenizers_of_child(tmp_path)[0].pieces("<2it> one")


def test_a_sentencepiece_child_has_entries_for_new_characters(one_thread, mt, begin_with, tmp_path):
    from marian_files import write_marian

    folder = tmp_path / "opus-en-xx"
    folder.mkdir()
    write_marian(folder)
    options = ("--source-language", "en", "--target-language", "xx")
    assert mt("import", folder, "--output", "runs/opus", *options)[0] == 0
    write(tmp_path, train_en="one two", train_xx="狗在睡觉。一只猫在看狗")
    status, text, err = begin_with("runs/opus", "--files", "train.en", "train.xx", *options)
    assert status == 0 and "vocabulary: extend" in text and "normalize" not in text, err
    tokenizer = tokenizers_of_child(tmp_path)[1]
    assert not any(UNK_ID in ids for ids in tokenizer.encode(["狗在看猫", "睡觉"]))


@pytest.mark.slow
def test_the_config_of_a_child_trains(mt, begin_with, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    write(tmp_path, train_en="one two", train_it="uno due")
    assert begin_with("runs/tiny", *FILES)[0] == 0
    status, _, err = mt("train", "--config", "child.yaml", "--set", "training.max_epochs=1")
    assert status == 0 and "begins with runs/tiny" in err and "new source entries" in err, err
    assert load_config(tmp_path / "runs/child/config.yaml").model.d_model == 32
