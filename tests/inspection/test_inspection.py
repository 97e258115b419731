import dataclasses
import json
import math
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

from mt_cli.config.sections import ModelConfig
from mt_cli.evaluation.scores import LOWER_IS_BETTER, METRICS
from mt_cli.inspection.trace import (
    KINDS,
    choice_table,
    draw_model,
    parameter_table,
    trace_translation,
)
from mt_cli.model.transformer import Transformer
from mt_cli.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(trained):
    return Translator.load(trained, "cpu", "fp32")


def test_the_parameter_table_counts_every_weight_once(translator):
    lines = parameter_table(translator.engine.model)
    total = sum(weight.numel() for weight in translator.engine.model.parameters())
    numbers = [int(line.split()[-2].replace(",", "")) for line in lines[1 : lines.index("")]]
    assert sum(numbers) == total
    assert f"{total:,}" in lines[-1]
    assert any(re.match(r"encoder\.N\.self_attention\.query\.weight +32 x 32 ", line) for line in lines)


def test_a_trace_agrees_with_greedy_translation_and_with_scoring(translator):
    trace = trace_translation(translator, "one two three.")
    assert trace.text == translator.translate(["one two three."], beam_size=1)[0] == "ONE TWO THREE."
    assert [choice.token for choice in trace.choices] == trace.output_tokens == ["ONE", "TWO", "THREE", "￭.", "[EOS]"]
    for choice in trace.choices:
        assert choice.probability > choice.runners_up[0][1] >= choice.runners_up[-1][1] >= 0
        assert choice.probability + sum(probability for _, probability in choice.runners_up) <= 1.001
    score = sum(translator.score(["one two three."], [trace.text])[0].token_scores)
    assert math.prod(choice.probability for choice in trace.choices) == pytest.approx(math.exp(score), rel=1e-3)
    for kind, (weights, *further) in trace.attention.items():
        size = len(trace.target_tokens), len(trace.source_tokens)
        expected = {KINDS[0]: (size[1], size[1]), KINDS[1]: (size[0], size[0]), KINDS[2]: size}[kind]
        assert not further and weights.shape == (2, *expected)
        assert weights.sum(axis=-1).flatten().tolist() == pytest.approx([1.0] * 2 * expected[0], abs=1e-5)
    decoder = trace.attention[KINDS[1]][0]
    assert not np.triu(decoder, 1).any()


def test_likelier_tokens_that_the_search_excludes_are_named(translator):
    decoding = translator.decoding.model_copy(update={"no_repeat_ngram": 1})
    trace = trace_translation(dataclasses.replace(translator, decoding=decoding), "one one.")
    for choice, line in zip(trace.choices, [*choice_table(trace)][1:], strict=True):
        assert ("(excluded)" in line) == (choice.runners_up[0][1] > choice.probability)
    assert any("(excluded)" in line for line in choice_table(trace))


def test_inspect_prints_tables_and_draws(mt, trained, tmp_path):
    status, out, err = mt("inspect", "--run", trained, "--output", "pictures")
    assert status == 0 and "cross_attention.query.weight" in out and "100.0%" in out
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {"positions.png"}
    status, out, err = mt("inspect", "one two.", "--run", trained, "--output", "heads", "--picture", "svg")
    assert status == 0 and out.startswith("ONE TWO.\n") and "runners-up" in out and len(out.splitlines()) == 6
    text = (tmp_path / "heads" / "cross_attention.svg").read_text(encoding="utf-8")
    assert "layer 1, head 2" in text and "layer 1, mean" in text and ">[EOS]<" in text
    assert len(list((tmp_path / "heads").iterdir())) == 4 == err.count("wrote ")


def test_positions_are_drawn_if_the_model_has_a_table(translator, tmp_path):
    def model_with(**options):
        sizes = translator.source_tokenizer.vocab_size, translator.target_tokenizer.vocab_size
        return Transformer(ModelConfig(d_model=32, num_heads=2, **options), *sizes)

    assert draw_model(model_with(positions="rotary"), tmp_path, "png") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspect", " "), "sentence"),
        (("inspect", "one " * 300), "up to 6"),
        (("inspect", "one.", "--picture", "bmp"), "--picture"),
    ],
)
def test_pictures_that_cannot_be_drawn_are_named(mt, trained, arguments, words):
    status, _, err = mt(*arguments, "--run", trained)
    assert status == 2 and words in err


class Page(HTMLParser):
    """Checks that tags are closed, and collects the addresses that a page would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loaded = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        addresses = [value for name, value in attributes if name in ("src", "href")]
        self.loaded += [address for address in addresses if not address.startswith(("#", "data:"))]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_report_is_one_page_that_loads_nothing(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("max_epochs: 30", "max_epochs: 31"), encoding="utf-8")
    status, out, err = mt("report", "--run", trained, "--against", "other", "--output", "page.html")
    assert (status, out, err) == (0, "page.html\n", "")
    status, _, err = mt("report", "--run", "other", "--output", config)
    assert status == 2 and "a file of the run" in err
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and page.loaded == []
    assert "url(" not in text and "@import" not in text
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert f"{report['bleu']['score']:.2f}" in text and report["bleu"]["signature"] in text
    for metric, label in METRICS.items():
        better = "lower" if metric in LOWER_IS_BETTER else "higher"
        assert f"<td>{label}</td><td>{better}</td>" in text
    assert text.count("+0.00 <small>(p 1.000)</small>") == len(METRICS), "translations are equal"
    assert "<td><code>training.max_epochs</code></td><td>30</td><td>31</td>" in text
    assert text.count('<img src="data:image/svg+xml;base64,') >= 6


def test_an_unfinished_or_damaged_run_is_reported_as_text(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "report.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 5, "train/loss": 2.5}\n{"step"', encoding="utf-8")
    (tmp_path / "run" / "samples.txt").write_text(
        "# step 9\nsource     <script>alert(1)</script>\nreference  a&b\nhypothesis <b>\n\n", encoding="utf-8"
    )
    assert mt("report", "--run", "run")[0] == 0
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "not finished" in text
    assert "<script" not in text and "&lt;script&gt;" in text and "a&amp;b" in text


def test_every_metric_is_documented(root, trained):
    documented = set(re.findall(r"`((?:train|valid)/[\w/]+)", (root / "docs/runs.md").read_text()))
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    tags = {key for row in rows for key in row} - {"step", "elapsed_seconds"}
    assert tags and tags <= documented
