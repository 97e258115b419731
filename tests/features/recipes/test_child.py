"""`mt init` beside other runs: which one it names, and configs that begin with one."""

import shutil

import pytest
import yaml

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import load_config
from mt_cli.features.recipes.auto import merge_letters
from mt_cli.tokenizer.special_tokens import UNK_ID


def write(folder, **sides):
    """Files of one pair of texts in 60 numbered variants, named by keywords such as `train_en`."""
    for name, text in sides.items():
        lines = [text.format(n) if "{" in text else f"{text} {n}." for n in range(60)]
        (folder / name.replace("_", ".")).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def parent(mt, tiny_tree, tmp_path):
    """A function that trains the run `runs/parent` for an epoch with some other options."""

    def train(corpus=(), tokenizer=()):
        tree = tiny_tree | {"name": "parent", "corpus": tiny_tree["corpus"] | dict(corpus)}
        tree |= {"tokenizer": dict(tokenizer)} if tokenizer else {}
        tree["training"]["max_epochs"] = 1
        (tmp_path / "parent.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        assert mt("train", "--config", "parent.yaml")[0] == 0

    return train


def test_a_run_from_the_same_language_is_named_to_begin_with(mt, trained, tmp_path):
    write(tmp_path, train_en="one two", train_it="uno due", train_xx="ONE TWO")
    assert " to begin with a well" not in mt("init", "--files", "train.en", "train.it", "--output", "first.yaml")[2]
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    shutil.copytree(trained, tmp_path / "runs" / "unfinished")
    (tmp_path / "runs" / "unfinished" / "report.json").unlink()
    (tmp_path / "runs" / "unfinished" / "checkpoints" / "best.safetensors").touch()
    (tmp_path / "runs" / "damaged" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "damaged" / "checkpoints" / "best.safetensors").touch()
    (tmp_path / "runs" / "damaged" / "report.json").touch()
    status, _, err = mt("init", "--files", "train.en", "train.it", "--output", "second.yaml")
    assert status == 0 and "note: runs/tiny translates from en, too, into xx (" in err, err
    assert "mt init --begin-with runs/tiny writes such a config" in err
    languages = ("--source-language", "en", "--target-language", "xx")
    status, _, err = mt("init", "--files", "train.en", "train.xx", *languages, "--output", "third.yaml")
    assert status == 0 and " to begin with a well" not in err


def test_a_config_that_begins_with_a_run_has_its_model_and_the_spellings_of_the_text(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    words = ["lo", "mang'", "gn", "er", "jach", "qull"]
    for name, apostrophe in (("train", "\u2019"), ("valid", "'")):
        shown = [f"{words[n % 6]} d{apostrophe}un {words[n // 6 % 6]} l{apostrophe}altro" for n in range(60)]
        texts = [f"{text} {n + 60 * (name == 'valid')}." for n, text in enumerate(shown)]
        (tmp_path / f"{name}.it").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        write(tmp_path, **{f"{name}_en": f"one {name} {{}}."})
    command = ("init", "--files", "train.en", "train.it", "--begin-with")
    status, _, err = mt(*command, "runs/tiny", "--name", "child")
    assert status == 0 and "of runs/tiny  tokenizer, model" in err and "expect" not in err, err
    text = (tmp_path / "child.yaml").read_text(encoding="utf-8")
    assert "init: {run: runs/tiny, vocabulary: extend}" in text and "begins with runs/tiny." in text
    assert "normalize: [apostrophes" in text and "model:" not in text
    status, _, err = mt("train", "--config", "child.yaml", "--set", "training.max_epochs=1")
    assert status == 0 and "begins with runs/tiny" in err, err
    child = load_config(tmp_path / "runs/child/config.yaml")
    assert child.model.d_model == 32 and "apostrophes" in child.tokenizer.normalize
    status, _, err = mt(*command, "runs/tinny", "--name", "other")
    assert status == 2 and "--begin-with: runs/tinny: no such run directory, did you mean runs/tiny?" in err
    status, _, err = mt(*command, "runs/tiny", "--name", "tiny")
    assert status == 2 and "runs/tiny is the directory of this run itself" in err


def test_the_spellings_of_a_parent_are_kept_beside_those_of_the_text(mt, parent, tmp_path):
    parent(tokenizer={"letters": {"ã": "a"}})
    for name, letter in (("train", "õ"), ("valid", "ô")):
        shown = [f"l{letter}p k{letter}la r{letter} w{letter}sk{chr(97 + n % 26)}" for n in range(300)]
        texts = [f"{text} {n + 300 * (name == 'valid')}." for n, text in enumerate(shown)]
        (tmp_path / f"{name}.xx").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("".join(f"one {name} {n}.\n" for n in range(300)), encoding="utf-8")
    status, _, err = mt(
        "init",
        "--files",
        "train.en",
        "train.xx",
        "--target-language",
        "xx",
        "--begin-with",
        "runs/parent",
        "--name",
        "child",
    )
    assert status == 0, err
    assert "of runs/parent  tokenizer, model, but tokenizer.letters {ã: a, õ: ô}" in err
    assert load_config(tmp_path / "child.yaml").tokenizer.letters == {"ã": "a", "õ": "ô"}
    assert "# of runs/parent, and as valid or test writes" in (tmp_path / "child.yaml").read_text(encoding="utf-8")


def test_letters_of_a_parent_and_of_a_text_are_merged_so_that_none_is_replaced_twice():
    for old, new, expected in (
        ({"é": "e"}, {"ã": "â"}, {"é": "e", "ã": "â"}),
        ({"â": "a"}, {"ã": "â"}, {"ã": "â"}),
        ({"ã": "a"}, {"ã": "â"}, {"ã": "â"}),
        ({"õ": "ã"}, {"ã": "â"}, {"õ": "â", "ã": "â"}),
    ):
        assert merge_letters(old, new) == expected


def test_a_config_that_begins_with_a_model_for_several_directions_has_a_tag(mt, parent, tmp_path):
    parent(corpus={"tag": "to_target", "both_directions": True})
    write(tmp_path, train_en="one two", train_it="uno due")
    status, _, err = mt("init", "--files", "train.en", "train.it", "--name", "child", "--begin-with", "runs/parent")
    assert status == 0, err
    assert "tag: to_target" in (tmp_path / "child.yaml").read_text(encoding="utf-8")
    status, _, err = mt("train", "--config", "child.yaml", "--set", "training.max_epochs=1")
    assert status == 0 and "new source entries" in err, err
    assert mt("translate", "--run", "runs/child", "--to", "it", "one two")[0] == 0


def test_a_config_that_begins_with_a_sentencepiece_model_gives_new_characters_entries(one_thread, mt, tmp_path):
    from marian_files import write_marian

    folder = tmp_path / "opus-en-xx"
    folder.mkdir()
    write_marian(folder)
    options = ("--source-language", "en", "--target-language", "xx")
    assert mt("import", folder, "--output", "runs/opus", *options)[0] == 0
    write(tmp_path, train_en="one two", train_xx="狗在睡觉。一只猫在看狗")
    status, _, err = mt(
        "init", "--files", "train.en", "train.xx", *options, "--name", "child", "--begin-with", "runs/opus"
    )
    assert status == 0, err
    text = (tmp_path / "child.yaml").read_text(encoding="utf-8")
    assert "vocabulary: extend" in text and "normalize" not in text
    status, _, err = mt("train", "--config", "child.yaml", "--set", "training.max_steps=1")
    assert status == 0 and "new shared entries" in err, err
    tokenizer = TrainedRun.load(tmp_path / "runs/child").tokenizers[1]
    assert not any(UNK_ID in ids for ids in tokenizer.encode(["狗在看猫", "睡觉"]))
