"""Text of one language: rounds of translations, which are exact, bounded and counted."""

import json
import os
import re
import shutil
import signal
from types import SimpleNamespace

import pytest
import yaml
from run_content import assert_same_run, metrics_of, report_of, rows_of, write_lines

from mt_cli.advice.new_config import texts_by_side
from mt_cli.config.loading import load_config, parse_config
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.prepare import synthetic_shares
from mt_cli.decoding import constraints
from mt_cli.errors import InputError
from mt_cli.run import loop, rounds
from mt_cli.run.resume import save_state
from mt_cli.run.rounds import Rounds
from mt_cli.runtime.group import Group
from mt_cli.serving.models import Models
from mt_cli.tokenizer.special_tokens import EOS_ID
from mt_cli.tokenizer.tokenizer import load_tokenizers
from mt_cli.training.plan import Pace, pace_of

LINES = 300
CASE = {"training.ema_decay": 0.9, "corpus.filters.keep_likely": 0.5}
SLOW_CASE = {
    "tokenizer": "{algorithm: bpe, vocab_size: 320, bpe_dropout: 0.1, shared: true}",
    "training.inserted_words": 0.5,
    "corpus.monolingual": "{target: {file: mono.xx}, source: {file: CORPUS/train.en}}",
}


@pytest.fixture
def train(mt, tiny_tree, corpus, tmp_path, monkeypatch):
    """Runs `mt train` with text in the target language, in 20 steps with a validation every five, and early rounds."""
    monkeypatch.setattr(rounds, "_LEAST_ROUND_TRIP", 0.0)
    monkeypatch.setattr(rounds, "_LEAST_OF_SAMPLES", 0.0)
    monkeypatch.setattr(rounds, "FIRST_ROUND", 0.0)
    lines = (corpus / "train.xx").read_text(encoding="utf-8").splitlines()[:LINES]
    write_lines(tmp_path / "mono.xx", [f"{line[:-1]} {line}" for line in lines])
    tiny_tree["corpus"] |= {"monolingual": {"target": {"file": "mono.xx"}}, "valid": {"fraction": 0.05}}
    tiny_tree["training"] |= {"max_steps": 20, "validate_every_steps": 5, "schedule": "constant", "best_metric": "loss"}
    tiny_tree["training"] |= {"learning_rate": 0.003}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")

    def run(name, *arguments, **changes):
        values = {key: str(value).replace("CORPUS", str(corpus)) for key, value in changes.items()}
        settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        return mt("train", "--config", "tiny.yaml", "--set", f"name={name}", *settings, *arguments)

    return run


def round_files(run):
    return {path.name: path.read_bytes() for path in sorted((run / "rounds").iterdir())}


def stop_at(monkeypatch, owner, name, number):
    """Send SIGTERM at a call of a function."""
    function, calls = getattr(owner, name), []

    def stopping(*arguments, **options):
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, stopping)


def killed_after_a_round(setup, state, sizes):
    """End when all is written but the state that has the round."""
    if state.round.number:
        raise KeyboardInterrupt
    save_state(setup, state, sizes)


@pytest.mark.parametrize(
    "changes",
    [{"training.ema_decay": 0.9, "corpus.filters.keep_likely": 0.5}, pytest.param(SLOW_CASE, marks=pytest.mark.slow)],
)
def test_a_run_stopped_in_a_round_equals_an_unstopped_one(train, begin, tmp_path, monkeypatch, changes):
    whole = begin("whole", **changes)
    assert [row["train/synthetic/round"] for row in rows_of(whole) if "train/synthetic/round" in row] == [1, 2, 3]
    assert (whole / "pair_scores.npy").exists() == ("corpus.filters.keep_likely" in changes)
    for owner, name, number in ((Rounds, "_round_trip_chrf", 1), (rounds, "judged", 2), (Rounds, "pairs", 2)):
        with monkeypatch.context() as patch:
            stop_at(patch, owner, name, number)
            status, _, err = train("parts", **changes)
            assert status == 130, err
    assert train("parts", **changes)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_state", killed_after_a_round)
        assert train("killed", **changes)[0] == 130
    assert train("killed", **changes)[0] == 0
    assert_same_run(tmp_path / "runs/killed", whole)
    assert_same_run(tmp_path / "runs/parts", whole)
    assert round_files(tmp_path / "runs/parts") == round_files(whole)


def test_a_line_is_always_the_target_and_all_are_counted(begin, tmp_path):
    run = begin("whole")
    config = load_config(run / "config.yaml")
    tokenizers = load_tokenizers(run, config)
    lines = {*(tmp_path / "mono.xx").read_text(encoding="utf-8").splitlines()}
    files = sorted((run / "rounds").glob("*.arrow"))
    assert 1 <= len(files) <= config.training.keep_last + rounds._MOST_ACTIVE
    for path in files:
        pairs, part = EncodedPairs.open(path), json.loads(path.with_suffix(".json").read_bytes())
        sides = zip(*(pairs[index] for index in range(len(pairs))), strict=True)
        sources, targets = (tokenizer.decode(map(list, ids)) for tokenizer, ids in zip(tokenizers, sides, strict=True))
        assert lines.issuperset(targets) and all(text.startswith("<bt><2xx> ") for text in sources)
        assert len(pairs) == part["num_kept"] and part["is_sampled"] and part["round_trip_chrf"] >= 0
    for path in (run / "rounds").glob("*.json"):
        part = json.loads(path.read_bytes())
        assert part["num_lines"] == part["num_kept"] + sum(part["dropped"].values())


def test_rounds_begin_late_and_with_a_model_that_can_translate(train, monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "FIRST_ROUND", 0.4)
    assert train("late")[0] == 0
    assert [row["step"] for row in rows_of(tmp_path / "runs/late") if "train/synthetic/round" in row] == [11, 16]
    monkeypatch.setattr(rounds, "_LEAST_OF_SAMPLES", 101.0)
    assert train("greedy")[0] == 0
    assert round_files(tmp_path / "runs/greedy").keys() == round_files(tmp_path / "runs/late").keys()
    assert round_files(tmp_path / "runs/greedy") != round_files(tmp_path / "runs/late")
    monkeypatch.setattr(rounds, "_LEAST_ROUND_TRIP", 101.0)
    status, _, err = train("poor")
    assert status == 0 and err.count("no round: lines of mono.xx, translated and translated back, have chrF") == 2, err
    monkeypatch.setattr(rounds, "pace_of", lambda *sizes: Pace(24, {"target": 9}))
    status, _, err = train("seldom", **{"training.validate_every_steps": 2, "training.max_steps": 40})
    assert status == 0 and re.findall(r"step +(\d+)  no round", err) == ["24"], err
    assert not [row for row in rows_of(tmp_path / "runs/poor") if "train/synthetic/round" in row]


class TwoInOne(Group):
    """Two processes, whose shares are computed one after the other."""

    def map_shares(self, work, items):
        results = [None] * len(items)
        for rank in range(self.size):
            results[rank :: self.size] = work(list(items[rank :: self.size]))
        return results

    def from_main(self, work):
        return work()


def test_a_round_is_the_same_for_any_number_of_processes(train, monkeypatch):
    monkeypatch.setattr("mt_cli.run.synthetic._LINES_PER_BLOCK", 7)
    made = []
    make = Rounds.make

    def make_twice(self, state, *arguments):
        found = []
        for group in (Group(), TwoInOne(size=2)):
            run = SimpleNamespace(**{**vars(self.run), "group": group})
            make(Rounds(run, self.validator, self.steps_per_epoch), state, *arguments)
            found.append(round_files(self.run.directory.path))
        made.append(found)
        return make(self, state, *arguments)

    monkeypatch.setattr(Rounds, "make", make_twice)
    assert train("run", **{"training.max_steps": 8})[0] == 0
    assert made and all(one == two for one, two in made)


def test_another_model_translates_a_text_once(begin, train, tmp_path, corpus, monkeypatch):
    begin("whole")
    monkeypatch.setattr(constraints, "NEVER_PRODUCED", (*constraints.NEVER_PRODUCED, EOS_ID))  # No line is empty.
    monkeypatch.setattr(rounds, "_LINES_PER_FILE", 100)
    changes = {"corpus.monolingual": "{target: {file: mono.xx, translate_with: runs/whole}}"}
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "write_part", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        assert train("run", **changes)[0] == 130
    status, _, err = train("run", **changes)
    assert status == 0 and f"translates {LINES} lines" in err, err
    files = round_files(tmp_path / "runs/run")
    assert len(files) == 2 * LINES // 100
    shutil.copytree(tmp_path / "runs/run/rounds", tmp_path / "runs/other/rounds")
    lines = (tmp_path / "mono.xx").read_text(encoding="utf-8").splitlines()
    write_lines(tmp_path / "other.xx", [f"{line[:-1]} TWO." for line in lines])
    assert train("other", **{key: value.replace("mono", "other") for key, value in changes.items()})[0] == 0
    others = round_files(tmp_path / "runs/other")
    assert others.keys() == files.keys() and not any(others[name] == files[name] for name in files)
    assert "train/synthetic/round" not in {key for row in rows_of(tmp_path / "runs/run") for key in row}
    assert any(row.get("train/num_pairs/mono.xx", 0) > 0 for row in rows_of(tmp_path / "runs/run")), err
    shutil.rmtree(tmp_path / "runs/whole")
    assert train("run", **changes, **{"training.max_steps": 40})[0] == 0
    status, _, err = train("wrong", **{"corpus.monolingual": "{source: {file: mono.xx, translate_with: runs/no}}"})
    assert status == 2 and "corpus.monolingual.source.translate_with" in err
    status, _, err = train("both", **changes, **{"corpus.both_directions": True})
    assert status == 2 and "remove `both_directions`" in err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: path.write_text("one more line\n", encoding="utf-8"), "has changed since"),
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_text("\n\n", encoding="utf-8"), "no line of"),
        (lambda path: path.write_text("one\tONE\n", encoding="utf-8"), "most lines have a tab"),
        (lambda path: path.write_text("x" * 10_000_001, encoding="utf-8"), "longer than"),
    ],
)
def test_a_text_that_changes_is_one_message(begin, train, tmp_path, change, expected):
    run = begin("whole", **{"training.max_steps": 8})
    before = metrics_of(run)
    change(tmp_path / "mono.xx")
    status, _, err = train("whole")
    assert status == 2 and expected in err and "mono.xx" in err.replace("corpus.monolingual.target", "mono.xx"), err
    assert metrics_of(run) == before


@pytest.mark.parametrize(("text", "note"), [("known", "lines are in train"), ("strange", "only 0% of its words")])
def test_data_check_notes_text_that_teaches_nothing(train, mt, corpus, tmp_path, text, note):
    lines = (corpus / "train.xx").read_text(encoding="utf-8").splitlines()[:LINES]
    write_lines(tmp_path / "mono.xx", lines if text == "known" else [f"QUO VADIS {'IN' * n}" for n in range(1, 20)])
    status, out, err = mt("data", "check", "--config", "tiny.yaml")
    assert status == 0 and note in out + err, out + err


def test_init_finds_the_side_of_a_text_by_its_name():
    found = texts_by_side(["mono.ita", "a/news.en.gz", "b.it"], ("en", "it"))
    assert found == {"target": {"file": ["mono.ita", "b.it"]}, "source": {"file": "a/news.en.gz"}}
    for unclear in ("mono.fr", "mono"):
        with pytest.raises(InputError, match=f"--mono {unclear}: is it en or it?"):
            texts_by_side([unclear], ("en", "it"))


def test_a_user_hears_of_one_direction(begin, mt):
    run = begin("whole")
    status, out, err = mt("translate", "--run", run, "one two.")
    assert status == 0 and "--to" not in err and len(out.splitlines()) == 1
    assert mt("translate", "--run", run, "--to", "en", "ONE TWO.")[0] == 0
    assert Models.load([run]).models[0].directions == (("en", "xx"),)
    assert "directions" not in report_of(run) or not report_of(run)["directions"]
    assert "<2xx>" not in (run / "samples.txt").read_text(encoding="utf-8")


def test_a_config_with_text_is_complete_and_stays(tiny_tree):
    for texts in ({"target": {"file": "m"}}, {"target": {"file": ["m"], "translate_with": "runs/r"}}):
        tiny_tree["corpus"]["monolingual"] = texts
        config = parse_config(tiny_tree, "test")
        assert parse_config(config.model_dump(mode="json"), "test") == config
        assert config.corpus.tagging.targets == ["xx"] and config.corpus.tagging.default == "<2xx>"
        is_both = "translate_with" not in texts["target"]
        assert config.corpus.languages_of("train") == [("en", "xx"), ("xx", "en")][: 1 + is_both]
        assert config.corpus.languages_of("test") == [("en", "xx")]
        assert config.corpus.natural() == [True, False][: 1 + is_both]


def test_shares_and_paces_follow_from_sizes():
    for sizes in ({"target": 10}, {"target": 10**6}, {"source": 10**6}, {"target": 10**6, "source": 10**6}):
        shares = synthetic_shares(1000, sizes)
        assert 0 < sum(shares.values()) < 0.61 and shares.keys() == sizes.keys()
        for num_steps in (None, 600, 10**6):
            pace = pace_of(sizes, 2.0, num_steps, epoch=50)
            assert all(1 <= pace.num_lines[side] <= size for side, size in sizes.items())
            assert sum(pace.num_lines.values()) <= 2 * pace.every_steps + len(sizes)
            assert 1 <= pace.every_steps <= 1000 and (num_steps is None or pace.every_steps <= num_steps / 6)
