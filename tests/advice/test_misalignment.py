import gzip
import random
import re

import pytest
from corpora import practice_pairs

from mt_cli.advice.clean_copy import repaired
from mt_cli.config.sources import FilesSource
from mt_cli.corpus.misalignment import Alignment, find_misaligned_stretches, first_misaligned_line
from mt_cli.corpus.source_rows import read_rows
from mt_cli.errors import CorpusError


def words_of(number, seed):
    """Made-up words, which share no letters with those of another seed."""
    generator = random.Random(seed)
    letters = ("aeioubcdfg", "αεηιουβγδζ", "かきくけこさしすせそ")[seed]
    return ["".join(generator.choices(letters, k=generator.randrange(2, 9))) for _ in range(number)]


def sides(number=1_500, seed=1, target_script=1, separator=" "):
    """Sentences of random words, and the same word by word in another script, in another order."""
    generator = random.Random(seed)
    source_words, target_words = words_of(400, 0), words_of(400, target_script)
    sources, targets = [], []
    for _ in range(number):
        chosen = [min(int(generator.expovariate(1 / 60)), 399) for _ in range(generator.randrange(3, 12))]
        sources.append(" ".join(source_words[word] for word in chosen))
        generator.shuffle(chosen)
        targets.append(separator.join(target_words[word] for word in chosen))
    return sources, targets


def practice_sides():
    return [list(side) for side in zip(*practice_pairs("train")[:1_000], strict=True)]


def lost(lines, place, number):
    return lines[:place] + lines[place + number :]


SCRIPTS = [(1, " "), (2, "")]


@pytest.mark.parametrize(("script", "separator"), SCRIPTS)
def test_clean_text_has_no_slips(script, separator):
    for texts in (sides(100, 1, script, separator), sides(1_500, 1, script, separator), practice_sides()):
        assert find_misaligned_stretches(*texts) == Alignment([], False)


def random_words(number, seed):
    generator = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(generator.choices(letters, k=generator.randrange(3, 10))) for _ in range(number)]


SENTENCES, TRANSLATIONS = sides(99)


@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        (["a"] * 500, ["a"] * 500),
        ([f"what comes after {n}?" for n in range(1_000)], [str(n + 1) for n in range(1_000)]),
        (random_words(1_000, 5), random_words(1_000, 6)),  # Words do not recur.
        (SENTENCES, TRANSLATIONS[1:]),  # There are too few lines.
        ([], []),
    ],
)
def test_lines_without_evidence_are_no_slip(sources, targets):
    alignment = find_misaligned_stretches(sources, targets)
    assert alignment.stretches == [] and not alignment.is_unrelated
    assert first_misaligned_line(sources, targets) is None


def assert_stretch(sources, targets, first, last, slips, tolerance=8):
    """There is one stretch, about from `first` to `last`, with one of these slips."""
    ((found_first, found_last, slip),) = find_misaligned_stretches(sources, targets).stretches
    assert slip in slips and abs(found_first - first) <= tolerance and abs(found_last - last) <= 8


@pytest.mark.parametrize(("script", "separator", "place", "number"), [(1, " ", 0, 60), (2, "", 700, 1)])
def test_lost_lines_are_found_without_a_shared_letter(script, separator, place, number):
    sources, targets = sides(target_script=script, separator=separator)
    end = len(sources) - number
    assert_stretch(sources, lost(targets, place, number), place + 1, end, [-number], number + 8)
    assert_stretch(lost(sources, place, number), targets, place + 1, end, [number])


def shuffled(lines, start):
    return [*lines[:start], *random.Random(0).sample(lines[start:], len(lines) - start)]


@pytest.mark.parametrize(
    ("change", "first", "last", "slips", "tolerance"),
    [
        (lambda lines: [*lost(lines, 500, 1)[:1_100], "ξξξ ψψψ", *lost(lines, 500, 1)[1_100:]], 501, 1_100, [-1], 8),
        # Shortly before the end, many lost lines give the right slip or none.
        (lambda lines: lost(lines, 1_390, 20), 1_391, 1_480, [None, -20], 20),
        # A shuffled part belongs nowhere, and gets no invented slip.
        (lambda lines: shuffled(lines, 800), 801, 1_500, [None], 8),
    ],
)
def test_a_stretch_has_its_ends_and_no_invented_slip(change, first, last, slips, tolerance):
    sources, targets = sides()
    assert_stretch(sources, change(targets), first, last, slips, tolerance)


def test_sides_that_do_not_translate_each_other_are_unrelated():
    sources, targets = sides(2_000)
    random.Random(0).shuffle(targets)
    assert find_misaligned_stretches(sources, targets) == Alignment([], True)


def with_names(sources, targets, place, number):
    """Both sides with a list of names, which are not translated; names have the words of other names."""
    parts = ["Arithmetic", "Attribute", "Import", "Index", "Key", "Name", "Type", "Value", "Error", "Warning", "Exit"]
    pairs = [(first, second) for first in parts for second in parts]
    names = [f":exc:`{first}{second}{index // len(pairs)}`" for index, (first, second) in enumerate(pairs * 9)][:number]
    return ([*side[:place], *names, *side[place:]] for side in (sources, targets))


def test_lines_that_are_not_translated_are_no_evidence():
    sources, targets = with_names(*sides(800), 500, 100)
    assert find_misaligned_stretches(sources, targets).stretches == []
    for place in (300, 750):  # Slips before and after the names are found.
        stretches = find_misaligned_stretches(sources, lost(targets, place, 1)).stretches
        assert {slip for _, _, slip in stretches} == {-1}
        assert abs(stretches[0][0] - 1 - place) <= 8 and stretches[-1][1] == len(targets) - 1
    assert find_misaligned_stretches(sources[500:600], targets[500:600]).stretches == []


@pytest.mark.parametrize("slip", [1, 5])
def test_lines_beside_blank_ones_are_moved_to_their_partners(slip):
    sources, targets = sides()
    slipped = [*targets[:500], *sides(slip, seed=9)[1], *targets[500:]][: len(sources)]
    for place in range(600, 1_400, 100):
        slipped[place] = ""
    rows = [(number, *pair) for number, pair in enumerate(zip(sources, slipped, strict=True), start=1)]
    pairs, counts = repaired(rows, ("en", "el"))
    wrong = [source for source, target in pairs if targets[sources.index(source)] != target]
    assert len(wrong) <= slip and len(pairs) > 1_480 - 2 * slip and 8 <= counts["with a blank side"] <= 8 + slip


@pytest.mark.parametrize(("number", "first"), [(1, 392), (1, 600), (1, 850), (30, 901), (150, 1_100)])
def test_pairs_with_swapped_sides_beside_a_slip_are_repaired(number, first):
    """Hardly more pairs are lost than have no partner, or have both sides in one language."""
    texts = sides()
    right, swapped = set(zip(*texts, strict=True)), slice(first, first + 108)
    sources, targets = (
        [*side[: swapped.start], *other[swapped], *side[swapped.stop :]] for side, other in (texts, texts[::-1])
    )
    sources, targets = lost(sources, 900, number), lost(targets, 500, number)
    rows = [(line, *pair) for line, pair in enumerate(zip(sources, targets, strict=True), start=1)]
    pairs = set(repaired(rows, ("en", "el"))[0])
    assert len(pairs & right) >= len(right) - 3 * number - 10 and len(pairs - right) <= 4


@pytest.mark.parametrize(("number", "kept"), [(0, 1_500), (600, 1_485), (1_500, 1_500)])
def test_swapped_text_in_an_unknown_language_is_exchanged(number, kept):
    """Only every other English line has common words, and so does every tenth of the other language."""
    sources, targets = sides(target_script=0)
    sources[1::2] = [f"the {words} and of it" for words in sources[1::2]]
    targets[2::10] = [f"{words} he is" for words in targets[2::10]]
    pairs = list(zip(sources, targets, strict=True))
    rows = [(line, *pair[:: -1 if line < number else 1]) for line, pair in enumerate(pairs)]
    found, counts = repaired(rows, ("en", "yo"))
    assert len(set(found) - set(pairs)) <= 1_500 - kept and counts["with their sides exchanged"] <= number
    assert len(set(found) & set(pairs)) >= kept


@pytest.mark.parametrize("lost", [3, 1_900])
def test_the_line_where_files_diverge_is_found(tmp_path, lost):
    generator = random.Random(lost)
    english = [" ".join(["word"] * generator.randrange(3, 20)) + generator.choice(".?!") for _ in range(2_000)]
    italian = [line.replace("word", "parola") for line in english]
    del italian[lost]
    for name, lines in (("a.en.gz", english), ("a.it.gz", italian)):
        (tmp_path / name).write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))
    source = FilesSource(files=(str(tmp_path / "a.en.gz"), str(tmp_path / "a.it.gz")))
    with pytest.raises(CorpusError, match=r"2,000 lines.*1,999") as caught:
        list(read_rows(source, ("en", "it")))
    assert (
        abs(int(re.search(r"line ([\d,]+)", str(caught.value).replace("line N", ""))[1].replace(",", "")) - (lost + 1))
        <= 2
    )
