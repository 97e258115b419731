import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from run_content import metrics_of
from safetensors.torch import load_file

from mt_cli.checkpoint.checkpoint import save_checkpoint
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import load_config
from mt_cli.run.train import train
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID


@pytest.fixture
def family(corpus, one_thread, once, tiny_tree):
    """A folder with the run `runs/parent`, of sixty pairs, and the configs `parent.yaml` and `child.yaml`."""
    return once("family", lambda folder: make_family(folder, corpus, tiny_tree | {"name": "parent"}))


def make_family(folder, corpus, tree):
    for name, number in (("train", 60), ("test", 5)):
        for side in ("en", "xx"):
            lines = (corpus / f"{name}.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / f"{name}.{side}").write_text("".join(lines[:number]), encoding="utf-8")
        tree["corpus"][name]["files"] = [f"{name}.en", f"{name}.xx"]
    tree["corpus"]["valid"] = {"fraction": 0.1}
    tree["model"] |= {"dropout": 0.3, "norm_order": "post", "output_bias": True}
    tree |= {"tokenizer": {"algorithm": "bpe", "vocab_size": 300, "shared": True}}
    tree["training"]["batch_tokens"] = 160
    tree["decoding"]["max_length_ratio"] = 0.5
    (folder / "parent.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    del tree["model"], tree["tokenizer"]
    tree |= {"name": "child", "init": {"run": "runs/parent"}}
    tree["training"] |= {"learning_rate": 1e-3, "validate_every_steps": 6, "schedule": "constant"}
    (folder / "child.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(load_config(folder / "parent.yaml"), Path("runs"))


@pytest.fixture
def child(family, mt, tmp_path):
    """Runs `mt train` on the pairs of the run `parent`, a copy of which is there, beginning with it."""
    shutil.copytree(family, tmp_path, dirs_exist_ok=True)

    def run(*settings):
        return mt("train", "--config", "child.yaml", *(part for each in settings for part in ("--set", each)))

    return run


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("settings", "damage", "named"),
    [
        (("model.d_model=32", "model.num_heads=2"), None, "model.d_model"),
        (("init.freeze=[embeddings, encoder, decoder, projection]",), None, "init.freeze"),
        (("init.run=runs/paren",), None, "runs/parent"),
        (("corpus.tag=to_target",), None, "<2xx>"),
        ((), lambda folder: truncate(folder / "runs/parent/checkpoints/best.safetensors"), "init.run: "),
    ],
)
def test_a_child_that_does_not_fit_is_refused_unwritten(child, tmp_path, settings, damage, named):
    if damage:
        damage(tmp_path)
    status, out, err = child(*settings)
    assert (status, out) == (2, "") and named in err, err
    assert not (tmp_path / "runs/child").exists()


def weights(path):
    tensors = load_file(path)
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}


def test_a_child_begins_with_model_and_tokenizers_of_its_parent(child, mt, tmp_path):
    assert mt("tokenize", "--config", "child.yaml")[0] == 0
    parent, run = tmp_path / "runs/parent", tmp_path / "runs/child"
    status, _, err = child("training.max_steps=1", "training.learning_rate=1e-12")
    assert status == 0, err
    before, after = (weights(each / "checkpoints/best.safetensors") for each in (parent, run))
    assert all(torch.allclose(before[name], after[name], atol=1e-8) for name in before)
    assert (run / "tokenizer.json").read_bytes() == (parent / "tokenizer.json").read_bytes()
    config, before = load_config(run / "config.yaml"), load_config(parent / "config.yaml")
    assert (config.model, config.tokenizer) == (before.model, before.tokenizer)
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    trained = TrainedRun.load(parent)
    expected = {"run": "parent", "languages": ["en", "xx"], "step": trained.state.best_step}
    assert report["parents"] == [expected | {"weights": trained.checkpoint.digest, "parents": [], "license": None}]


def test_a_child_is_compared_with_the_score_of_its_parent(child, tmp_path):
    def trained(name, *settings):
        status, _, err = child(*settings, f"name={name}", "training.max_steps=6", "decoding.max_length_ratio=0.1")
        assert status == 0, err
        report = json.loads((tmp_path / "runs" / name / "report.json").read_text(encoding="utf-8"))
        return report["validation"]

    same = trained("same", "training.learning_rate=1e-12", "training.best_metric=bleu")
    first, *_ = (row for row in metrics_of(tmp_path / "runs/same") if "valid/loss" in row)
    assert first["step"] == 0 and same["parent"] == pytest.approx(first["valid/bleu"], abs=1e-3)
    assert (same["is_above_parent"], same["is_below_parent"]) == (False, False)
    worse = trained("worse", "training.learning_rate=10", "training.best_metric=loss")
    assert (worse["is_above_parent"], worse["is_below_parent"]) == (False, True)
    assert worse["best"] > worse["parent"]


def test_frozen_parts_stay_and_all_others_are_trained(child, tmp_path):
    parts, prefixes = "[embeddings, decoder.0.cross_attention]", ("target_embedding.", "decoder.0.cross_attention.")
    options = "training.optimizer=muon", "training.max_steps=2", "training.learning_rate=1e-2"
    status, _, err = child(f"init.freeze={parts}", *options)
    assert status == 0, err
    before, after = (weights(tmp_path / f"runs/{name}/checkpoints/last.safetensors") for name in ("parent", "child"))
    best = weights(tmp_path / "runs/parent/checkpoints/best.safetensors")
    for name, weight in after.items():
        is_frozen = name.removeprefix("model.").startswith(("source_embedding.", *prefixes))
        assert torch.equal(weight, best[name]) == is_frozen, name
    assert before.keys() == after.keys()


ADAPTERS = "init.adapter_rank=4", "training.learning_rate=1e-2"


def test_adapters_are_saved_small_and_merged_in_use(child, mt, tmp_path, assert_same_run):
    options = *ADAPTERS, "training.max_steps=12", "training.ema_decay=0.9", "training.optimizer=muon"
    options = *options, "training.average_checkpoints=2"
    status, _, err = child(*options, "name=whole")
    assert status == 0, err
    assert child(*options, "name=parts", "training.max_steps=5")[0] == 0
    shutil.move(tmp_path / "runs/parent", tmp_path / "moved")
    status, _, err = child(*options, "name=parts")
    assert status == 0, err
    assert_same_run(tmp_path / "runs/parts", tmp_path / "runs/whole")
    run, parent = tmp_path / "runs/whole/checkpoints", weights(tmp_path / "moved/checkpoints/best.safetensors")
    base, best = weights(run / "base.safetensors"), weights(run / "best.safetensors")
    assert all(torch.equal(weight, base[name]) for name, weight in parent.items())
    assert all(name.endswith((".up", ".down")) for name in best)
    assert any(float(weight.abs().max()) > 0 for name, weight in best.items() if name.endswith(".up"))
    merged = TrainedRun.load(run.parent).model.state_dict()
    assert f"model.{next(iter(merged))}" in base and not any(name.endswith(".up") for name in merged)
    assert mt("average", "--run", "runs/whole", "--last", "2")[0] == 0
    translated = mt("translate", "--run", "runs/whole", "one two.")
    assert translated[0] == 0
    assert mt("average", "--run", "runs/whole", "--output", "runs/merged")[0] == 0
    assert not list((tmp_path / "runs/merged/checkpoints").glob("base*"))
    assert mt("translate", "--run", "runs/merged", "one two.")[1] == translated[1]


def test_adapters_need_the_weights_that_they_adapt(child, mt, tmp_path):
    assert child(*ADAPTERS, "training.max_steps=1")[0] == 0
    base = tmp_path / "runs/child/checkpoints/base.safetensors"
    content = base.read_bytes()
    other = TrainedRun.load(tmp_path / "runs/parent").model
    torch.nn.init.ones_(other.projection.bias)
    save_checkpoint(base, other, {})
    for command in (lambda: mt("translate", "--run", "runs/child", "one"), lambda: child(*ADAPTERS)):
        status, _, err = command()
        assert (status, "base.safetensors" in err) == (2, True)
    base.write_bytes(content)
    truncate(base)
    assert "base.safetensors: damaged" in mt("translate", "--run", "runs/child", "one")[2]


def test_an_extended_vocabulary_leaves_old_logits_as_they_were(child, mt, tmp_path):
    lines = ["一只猫在睡觉。", "狗看见猫。", "الكلب ينام في البيت", "one cat"] * 20
    for side in ("en", "xx"):
        text = "".join(f"{line} {number}\n" for number, line in enumerate(lines))
        (tmp_path / f"new.{side}").write_text(text if side == "en" else text.upper(), encoding="utf-8")
    settings = "corpus.train={files: [new.en, new.xx], tag: <2zh>, filters: {identical: false, wrong_language: false}}"
    extend = settings, "init.vocabulary=extend", "training.max_steps=1", "training.learning_rate=1e-12"
    status, _, err = child(*extend)
    assert status == 0, err
    parent, found = (TrainedRun.load(tmp_path / "runs" / name) for name in ("parent", "child"))
    old, new = parent.tokenizers[0], found.tokenizers[0]
    assert new.vocab_size > old.vocab_size
    assert len(new.encode(["<2zh> 一只猫"])[0]) < len(old.encode(["一只猫"])[0])
    ids = old.encode(["one two three.", "seven"])
    assert new.encode(["one two three.", "seven"]) == ids
    src_ids, tgt_ids = torch.tensor([[*ids[0], EOS_ID]]), torch.tensor([[SOS_ID, *ids[1]]])
    with torch.inference_mode():
        before, after = (each.model.eval()(src_ids, tgt_ids) for each in (parent, found))
    torch.testing.assert_close(after[..., : old.vocab_size], before, atol=1e-6, rtol=1e-6)
    table = found.model.target_embedding.table.weight
    spelled = old.encode(["狗"])[0][-3:]  # Three bytes.
    mean = parent.model.target_embedding.table.weight[spelled].mean(dim=0)
    torch.testing.assert_close(table[new.encode(["狗"])[0][-1]], mean, atol=1e-6, rtol=1e-6)
    assert mt("translate", "--run", "runs/child", "<2zh> 狗看见猫。")[0] == 0


def test_a_child_of_short_sentences_keeps_its_parents_length(child, tmp_path):
    for side, text in (("en", "one two"), ("xx", "ONE TWO")):
        (tmp_path / f"short.{side}").write_text("".join(f"{text} {number}\n" for number in range(30)))
    status, _, err = child("corpus.train={files: [short.en, short.xx]}", "training.max_steps=3")
    assert status == 0, err
    parent, run = (TrainedRun.load(tmp_path / "runs" / name) for name in ("parent", "child"))
    assert run.max_tokens == parent.max_tokens > 8


def test_letters_of_a_child_are_its_own_for_one_language(child, mt, tmp_path):
    assert child("tokenizer.letters={é: e, o: ö}", "training.max_steps=2", "name=lettered")[0] == 0
    tokenizer, before = (TrainedRun.load(tmp_path / "runs" / name).tokenizers[0] for name in ("lettered", "parent"))
    assert tokenizer.decode(tokenizer.encode(["xo É"])) == ["xö E"]
    assert before.decode(before.encode(["xo É"])) == ["xo É"]
    report = json.loads((tmp_path / "runs/lettered/report.json").read_text(encoding="utf-8"))
    assert "normalize:é>e+o>ö" in report["bleu"]["signature"]
    for target, expected in (("xx", {"é": "e", "o": "ö"}), ("yy", {})):
        settings = f"corpus.target={target}", f"name=child-{target}", "init.run=runs/lettered", "training.max_steps=1"
        status, _, err = child(*settings)
        assert status == 0, err
        assert load_config(tmp_path / f"runs/child-{target}/config.yaml").tokenizer.letters == expected


def test_the_mean_of_runs_of_one_lineage_is_a_run(child, mt, tmp_path):
    for name, parent in (("one", "parent"), ("two", "parent"), ("three", "one")):
        settings = f"name={name}", f"init.run=runs/{parent}", f"training.seed={len(name)}", "training.max_steps=2"
        assert child(*settings)[0] == 0
    mean = "average", "--run", "runs/one", "--run", "runs/three", "--run", "runs/two", "--output", "runs/mean"
    status, out, err = mt(*mean)
    assert (status, out) == (0, "runs/mean\n"), err
    one, two, three, mean = (
        weights(tmp_path / f"runs/{name}/checkpoints/best.safetensors") for name in ("one", "two", "three", "mean")
    )
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (one[name] + two[name] + three[name]) / 3)
    assert mt("evaluate", "--run", "runs/mean", "--split", "test")[0] == 0


@pytest.mark.usefixtures("child")
def test_a_refused_resumption_says_how_to_train_on(mt):
    status, _, err = mt("train", "--config", "parent.yaml", "--set", "training.batch_tokens=90")
    assert status == 2 and "training.batch_tokens: was" in err
    lines = re.search(r"init\.run.*?:\n((  .*\n)+)", err)[1]
    tree = yaml.safe_load(Path("parent.yaml").read_text(encoding="utf-8")) | yaml.safe_load(lines)
    del tree["model"], tree["tokenizer"]
    Path("next.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    changes = ("--set", "training.batch_tokens=90", "--set", "training.max_steps=1")
    status, _, err = mt("train", "--config", "next.yaml", *changes)
    assert status == 0 and tree["name"] != "parent", err


def test_a_child_of_a_tagged_parent_needs_its_tag(child, mt):
    settings = ("name=tagged", "corpus.tag=to_target", "training.max_steps=1")
    assert mt("train", "--config", "parent.yaml", *(part for each in settings for part in ("--set", each)))[0] == 0
    status, _, err = child("init.run=runs/tagged", "name=new")
    assert status == 2 and "corpus.tag: to_target" in err
    assert child("init.run=runs/tagged", "name=new", "corpus.tag=to_target", "training.max_steps=1")[0] == 0


def test_runs_that_cannot_be_combined_are_refused(child, mt, tmp_path):
    assert child("corpus.target=fr", "name=french", "training.max_steps=1")[0] == 0
    for name, setting in (("other", "training.learning_rate=1e-4"), ("smaller", "tokenizer.vocab_size=280")):
        options = ("--set", f"name={name}", "--set", setting, "--set", "training.max_steps=1")
        assert mt("train", "--config", "parent.yaml", *options)[0] == 0
    mean = ("average", "--output", "runs/mean")
    for command, runs, named in (
        (mean, ("parent", "french"), "runs/french: translates en to fr"),
        (("translate", "one"), ("parent", "smaller"), "runs/smaller: has other vocabularies"),
        (mean, ("parent", "other"), "runs/other: does not come from the same run"),
        (mean, ("parent", "../runs/parent"), "a run is given twice"),
        (("average",), ("parent", "other"), "--output"),
        (("average", "--output", "runs/other"), ("parent", "other"), "exists already"),
    ):
        status, _, err = mt(*command, *(part for run in runs for part in ("--run", f"runs/{run}")))
        assert status == 2 and named in err, err
    assert not (tmp_path / "runs/mean").exists()
