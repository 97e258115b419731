import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.extras.data_check.other_spelling import divergence, stretches

SHARES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1).map(
    lambda counts: {letter: count / sum(counts.values()) for letter, count in counts.items()}
)


@given(SHARES, SHARES)
def test_the_divergence_is_symmetric_between_0_and_1_and_0_for_equal_shares(one, other):
    assert divergence(one, other) == pytest.approx(divergence(other, one))
    assert -1e-12 <= divergence(one, other) <= 1 + 1e-12
    assert divergence(one, one) == 0
    assert divergence(one, {"x": 1.0}) == pytest.approx(1)


def texts(number, letters, seed):
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=12)) for _ in range(number)]


def test_stretches_in_another_orthography_are_found_and_no_others():
    modern, old = "kwaeiosnt", "cuaeiosnq"
    lines = [*texts(1000, modern, 1), *texts(750, old, 2), *texts(500, modern, 3), *texts(250, old, 4)]
    rows = list(enumerate(lines, 1))
    found = stretches(rows, texts(400, modern, 5))
    assert [(each.first, each.last) for each in found] == [(1001, 1750), (2251, 2500)]
    assert {letter for letter, *_ in found[0].letters} < set("kwcutq")
    letter, here, there = found[0].letters[0]
    assert abs(here - there) > 0.1 and (here == 0) == (letter in "kwt")
    assert stretches(rows[:1000], texts(400, modern, 5)) == []
    assert stretches(rows, texts(20, modern, 5)) == []  # Too few letters to say.


def test_mt_data_check_names_the_lines(mt, tmp_path):
    english = [f"sentence number {place} of the text" for place in range(900)]
    target = [*texts(500, "kwaeiosnt", 1), *texts(400, "cuaeiosnq", 2)]
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in english), encoding="utf-8")
    (tmp_path / "train.shp").write_text("".join(f"{line}\n" for line in target), encoding="utf-8")
    valid = zip([f"other {line}" for line in english[:200]], texts(200, "kwaeiosnt", 6), strict=True)
    (tmp_path / "valid.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in valid), encoding="utf-8")
    sets = "train: {files: [train.en, train.shp]}, valid: {file: valid.tsv}"
    filters = "filters: {min_script_share: null, max_length_ratio: null, wrong_language: false}"
    config = f"name: t\ncorpus: {{source: en, target: shp, {sets}, {filters}}}\n"
    (tmp_path / "t.yaml").write_text(config, encoding="utf-8")
    status, out, err = mt("data", "check", "--config", "t.yaml")
    assert status == 0, err
    (line,) = [line for line in out.splitlines() if "unlike those of valid" in line]
    assert "about lines 501 to 900, have letters in shp" in line
