import io
import json
import random
import shutil
import signal
import subprocess
import sys

import pytest

from mt_cli.translator import Translator


@pytest.fixture
def standard_input(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return give


def test_a_trained_run_translates(mt, trained):
    status, out, _ = mt("translate", "one two.", "three.", "--run", trained)
    assert status == 0
    assert out == "ONE TWO.\nTHREE.\n"


def test_the_newest_run_is_used_and_named(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "moved")
    status, out, err = mt("translate", "three.")
    assert (status, out) == (0, "THREE.\n")
    assert "runs/moved" in err


def test_one_line_in_is_one_line_out(mt, trained, tmp_path, standard_input):
    lines = ["one two.", "", "   ", "three.\u2028four.\x0cfive.\x85six", "one\ttwo.", "three.\r"]
    data = "\n".join(lines).encode()
    (tmp_path / "in.txt").write_bytes(data)
    standard_input(data)
    from_pipe = mt("translate", "--run", trained)[1]
    from_file = mt("translate", "--run", trained, "--input", "in.txt")[1]
    assert mt("translate", "--run", trained, "--input", "in.txt", "--output", "out.txt")[:2] == (0, "")
    assert from_pipe == from_file == (tmp_path / "out.txt").read_text(encoding="utf-8")
    out = from_pipe.split("\n")
    assert len(out) == len(lines) + 1
    assert out[:3] == ["ONE TWO.", "", ""]
    assert out[-2:] == ["THREE.", ""]


def test_a_line_of_ten_thousand_words_is_one_line_and_is_not_cut(mt, trained, standard_input):
    standard_input(" ".join(["one two three."] * 3_334).encode() + b"\nthree.\n")
    status, out, err = mt("translate", "--run", trained, "--beam-size", "1")
    assert status == 0
    assert out.count("\n") == 2
    assert out.splitlines()[0].count("ONE") > 3_000
    assert "parts" in err


def test_json_gives_scores_and_n_best_is_sorted(mt, trained):
    status, out, _ = mt("translate", "one two.", "", "--run", trained, "--json", "--n-best", "3")
    first, empty = map(json.loads, out.splitlines())
    assert status == 0
    scores = [hypothesis["score"] for hypothesis in first["hypotheses"]]
    assert first["translation"] == first["hypotheses"][0]["text"] == "ONE TWO."
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert empty["translation"] == ""
    _, out, _ = mt("translate", "one two.", "", "--run", trained, "--n-best", "3")
    assert len(out.splitlines()) == 6


def test_attention_is_drawn(mt, trained, tmp_path):
    status, out, _ = mt("translate", "one two.", "--run", trained, "--attention", "a.png")
    assert (status, out) == (0, "ONE TWO.\n")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    status, _, err = mt("translate", "one two.", "--run", trained, "--attention", "a.xyz")
    assert status == 2
    assert "a.xyz" in err


def test_tokenize_shows_pieces_and_ids(mt, trained):
    assert mt("tokenize", "one two.", "--run", trained)[:2] == (0, "one two ￭.\n")
    assert mt("tokenize", "ONE.", "--run", trained, "--side", "target")[1] == "ONE ￭.\n"
    ids = mt("tokenize", "one two.", "--run", trained, "--ids")[1].split()
    assert len(ids) == 3
    assert all(int(index) > 3 for index in ids)


def test_tokenize_reports_on_a_config(mt, tiny_config, tmp_path):
    status, out, _ = mt("tokenize", "--config", tiny_config)
    assert status == 0
    assert "word_level" in out
    assert "0.00%" in out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".cache"]


def test_evaluate_scores_splits_and_files(mt, trained, corpus):
    status, out, _ = mt("evaluate", "--run", trained, "--json")
    scores = json.loads(out)
    assert status == 0
    assert (scores["run"], scores["split"], scores["num_sentences"]) == ("tiny", "test", 40)
    assert scores["bleu"]["score"] > 90
    assert scores["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert all(report[key] == scores[key] for key in ("bleu", "chrf", "ter", "num_sentences"))
    files = ["--source", corpus / "train.en", "--reference", corpus / "train.xx"]
    assert json.loads(mt("evaluate", "--run", trained, "--json", *files)[1])["bleu"] == scores["bleu"]
    assert "BLEU" in mt("evaluate", "--run", trained, "--split", "valid")[1]
    status, _, err = mt("evaluate", "--run", trained, "--split", "exam")
    assert status == 2
    assert "only valid, test" in err


def test_the_python_api_translates(trained):
    translator = Translator.load(trained)
    assert translator.translate(["one two.", "", "three."]) == ["ONE TWO.", "", "THREE."]


def test_doctor_examines(mt):
    status, out, _ = mt("doctor")
    assert status in (0, 1)
    for subject in ("python", "packages", "cpu", "threads", "disk"):
        assert subject in out


def test_a_full_disk_under_the_output_is_named(mt, trained, monkeypatch):
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        status, _, err = mt("translate", "one.", "--run", trained)
    assert status == 1
    assert "no space left on device" in err


def test_sigterm_ends_a_command_with_the_status_of_an_interruption(trained):
    process = subprocess.Popen(
        [sys.executable, "-m", "mt_cli", "translate", "--run", str(trained)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("one.\n" * 256)
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def names_run(tmp_path_factory):
    """A run that has seen a name in every sentence, and none of them twice."""
    from mt_cli.config.loading import parse_config
    from mt_cli.experiment.run import train

    folder = tmp_path_factory.mktemp("names")
    chance = random.Random(3)
    pairs = []
    for _ in range(600):
        words = chance.choices(["one", "two", "three", "four"], k=chance.randrange(1, 4))
        name = "".join(chance.choices("abcdefgh", k=9))
        place = chance.randrange(len(words) + 1)
        sides = (words, [word.upper() for word in words])
        pairs.append(tuple(" ".join([*side[:place], name, *side[place:]]) + "." for side in sides))
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    tree = {
        "name": "names",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": {"file": str(folder / "pairs.tsv")},
            "valid": {"fraction": 0.1},
        },
        "tokenizer": {"min_frequency": 2},
        "model": {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"max_epochs": 25, "batch_tokens": 300, "warmup_steps": 20, "learning_rate": 0.01, "device": "cpu"},
    }
    tree["training"]["validate_every_steps"] = 400
    tree["model"]["dropout"] = 0.0
    train(parse_config(tree, "test"), folder / "runs")
    return folder / "runs" / "names"


def test_unknown_words_are_copied_kept_or_avoided(mt, names_run):
    def translation(*options):
        status, out, _ = mt("translate", "one Xerxes two three.", "--run", names_run, *options)
        assert status == 0
        return out

    assert translation() == translation("--unk", "copy") == "ONE Xerxes TWO THREE.\n"
    assert translation("--beam-size", "1") == "ONE Xerxes TWO THREE.\n"
    assert translation("--unk", "keep") == "ONE [UNK] TWO THREE.\n"
    assert not {"Xerxes", "[UNK]"} & set(translation("--unk", "avoid").split())
    status, _, err = mt("translate", "one.", "--run", names_run, "--unk", "guess")
    assert status == 2 and "copy" in err


def test_a_reader_that_goes_away_is_no_error(trained, tmp_path):
    (tmp_path / "in.txt").write_text("one.\n" * 3000, encoding="utf-8")
    command = f"{sys.executable} -m mt_cli translate --run {trained} --input in.txt; echo status $? >&2"
    result = subprocess.run(
        ["bash", "-c", f"({command}) | head -n 1"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.stdout == "ONE.\n"
    assert result.stderr == "status 0\n"
