"""Text that other programs have processed or that is damaged: what is reported, with counts, and what is not."""

import re

import pytest
import yaml
from texts import TEXTS

from mt_cli.advice.notes import notes_on_scripts
from mt_cli.advice.problems import find_damage
from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.cleaning import KEPT
from mt_cli.corpus.reading import read_corpora

KINDS = {"processed", "segmented"}


def lines_of(code, number=80, start=0):
    """Different lines made of a text, whose sentences come one after the other."""
    sentences = TEXTS[code].split("\n")
    numbers = range(start, start + number)
    return [f"{number // len(sentences)} {sentences[number % len(sentences)]}" for number in numbers]


def pairs_of(number=80, start=0, source=str, target=str):
    """English and Italian pairs, each side changed by a function."""
    sides = map(source, lines_of("eng_Latn", number, start)), map(target, lines_of("ita_Latn", number, start))
    return list(zip(*sides, strict=True))


def beside_english(lines):
    return list(zip(lines_of("eng_Latn", len(lines)), lines, strict=True))


def numbered(lines, number=80):
    """Lines with numbers, one after the other."""
    return [f"{lines[index % len(lines)]} {index}" for index in range(number)]


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


@pytest.fixture
def damage(tmp_path):
    """Finds the damage in pairs of two languages."""

    def find(pairs, languages=("en", "it"), **options):
        write(tmp_path / "train.tsv", pairs)
        tree = {"source": languages[0], "target": languages[1], "train": {"file": str(tmp_path / "train.tsv")}}
        config = parse_config({"name": "t", "corpus": tree | {"valid": {"fraction": 0.1}} | options}, "test").corpus
        corpora = read_corpora(config, Cache(tmp_path / "cache"))
        return list(find_damage({name: corpus for name, corpus in corpora.items() if corpus.code == KEPT}, config))

    return find


def bpe(line):
    return " ".join(f"{word[:2]}@@ {word[2:]}" if len(word) > 3 else word for word in line.split())


def tokenised(line):
    return re.sub(r"([.,!?])", r" \1", line).replace("'", "' ")


def of_words(change):
    """A change of each word of a line."""
    return lambda line: " ".join(map(change, line.split()))


PROCESSED = {
    "BPE": bpe,
    "SentencePiece": of_words(lambda word: f"▁{word[:3]} {word[3:]}".strip()),
    "byte pieces": "{} <0xF0> <0x9F>".format,
    "Moses": tokenised,
    "letters": lambda line: " ".join(line.replace(" ", "_")),
    "unknown": lambda line: line.replace(" e", " <unk>").replace(" i", " [UNK]").replace(" t", " ⁇ "),
    "T5": "translate English to Italian: {}".format,
    "tag at the end": "{} </s> ita_Latn".format,
}


@pytest.mark.parametrize("name", PROCESSED)
def test_processed_text_is_a_problem_with_places_on_its_side(damage, name):
    change = PROCESSED[name]
    for sides in (("source", "target"), ("source",), ("target",)):
        changed = pairs_of(**dict.fromkeys(sides, change))
        problems = [finding for finding in damage(changed) if finding.kind in KINDS and not finding.is_note]
        assert {side for side in ("source", "target") for each in problems if f" {side} sent" in each.text} == {*sides}
        for problem in problems:
            side = " target sentences" in problem.text
            assert pairs_of()[problem.first - 1][side] != changed[problem.first - 1][side]
            assert problem.corpus == "train" and re.search(r"\(line \d+, line \d+, line \d+\)", problem.text)


def test_text_as_people_write_it_has_no_damage(damage):
    for code in TEXTS:
        sources = zip(lines_of("ita_Latn"), lines_of(code), strict=True)
        assert damage([(f"x {source}", target) for source, target in sources], ("qq", code)) == [], code


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("fr", ["Où est la gare ?", "Quel dommage !", "Voici : le pain ; l'eau.", "« Oui, dit-il. »"]),
        ("en", ["Well ... I see.", "It is .5 of that, at most.", "See :ref:`this . that`, please.", "A set of 3, 4."]),
        ("de", ["## Überschrift, neu.", "C# und C++ sind neu.", "Der Name <b>Haus</b>, so.", "[1] Siehe auch dort."]),
        ("hi", ["वह घर है ।", "मैं पानी पीता हूँ ।", "यह किताब है, और वह नहीं ।", "हम, तुम और वे।"]),
    ],
)
def test_spaces_of_a_language_or_markup_are_no_tokens(damage, code, lines):
    targets = [f"{number} {lines[number % 4]}" for number in range(80)]
    sources = [f"{number} x{number} y" for number in range(80)]
    findings = damage(list(zip(sources, targets, strict=True)), ("xx", code), filters={"wrong_language": False})
    assert not [finding for finding in findings if finding.kind in KINDS and not finding.is_note]


SEGMENTED = {
    "zh": ("今天 天气 很 好 ， 我们 去 公园 。", "今天天气很好，我们去公园。"),
    "ja": ("今日 は 天気 が いい です 。", "今日は天気がいいです。"),
    "th": ("วันนี้ อากาศ ดี มาก เรา ไป สวน กัน", "วันนี้อากาศดีมาก เราไปสวนกัน"),
}


def test_segmented_text_is_a_problem_in_scripts_without_spaces(damage):
    for code, texts in SEGMENTED.items():
        for text, expected in zip(texts, ([("segmented", False)], []), strict=True):
            findings = damage(beside_english(numbered([text])), ("en", code))
            assert [(finding.kind, finding.is_note) for finding in findings] == expected


def test_a_few_slips_are_no_damage_but_a_part_is(damage):
    pairs = pairs_of(400)
    for number, expected in ((8, set()), (120, {True}), (300, {False})):
        changed = pairs_of(number, target=tokenised) + pairs[number:]
        assert {finding.is_note for finding in damage(changed)} == expected, number


def test_a_tag_is_damage_unless_the_config_has_it(damage):
    pairs = pairs_of(source="<2it> {}".format)
    assert damage(pairs, tag="to_target") == []
    assert [finding.kind for finding in damage(pairs)] == ["processed"]


CYRILLIC = ["Сестра чисти стару лампу увече.", "Учитељ отвара прозор после школе."]
LATIN = ["Sestra čisti staru lampu uveče.", "Učitelj otvara prozor posle škole."]


def notes(train, code="sr", **others):
    """Notes on the scripts of sentences of one language, by corpus."""
    return list(notes_on_scripts({name: {code: lines} for name, lines in {"train": train, **others}.items()}))


def test_two_scripts_of_a_language_are_noted():
    (note,) = notes(numbered([*CYRILLIC, LATIN[0]], 90))
    assert "60 in Cyrillic, 30 in Latin of 90" in note
    (note,) = notes(numbered(CYRILLIC), valid=numbered(LATIN, 20))
    assert "sr is in Latin in valid, and in Cyrillic in train" in note
    assert notes(numbered(["今日は東京に行きます。", "コンピュータを使用する。"]), "ja") == []
    assert notes(numbered([*CYRILLIC * 4, f"{CYRILLIC[0]} Linux", "Linux"])) == [], "a name is no sentence"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda line: line.replace("o", "o\u200b", 1), "invisible"),
        (lambda line: line.replace(" ", "\\n", 1), "escapes"),
        (lambda line: f"{line} Å¡koly", "garbled"),
        (lambda line: f"{line} Tom &amp; Jerry", "entities"),
        (lambda line: f"{line} <b>ora</b>", "tags (`<b>`)"),
    ],
)
def test_damage_is_noted_with_counts_and_places(damage, change, name):
    changed = [(a, change(b)) if n % 8 == 0 else (a, b) for n, (a, b) in enumerate(pairs_of())]
    (note,) = damage(changed)
    assert note.is_note and note.kind == "text" and name in note.text and note.text.startswith("10 of 80 ")
    assert changed[0][1][:30].replace("\u200b", "") in note.text  # Examples are printed without it.
    assert "(line 1, line 9, line 17)" in note.text


@pytest.fixture
def config(tmp_path, tiny_tree):
    """Writes `c.yaml` with these pairs and options of `corpus`, and returns its name."""

    def write_config(pairs, **options):
        write(tmp_path / "all.tsv", pairs)
        write(tmp_path / "valid.tsv", pairs_of(9, 900))
        corpus = {"source": "en", "target": "it", "train": {"file": "all.tsv"}, "valid": {"file": "valid.tsv"}}
        training = tiny_tree["training"] | {"max_steps": 2, "max_epochs": None, "validate_every_steps": 2}
        tree = tiny_tree | {"name": "t", "corpus": corpus | options, "training": training}
        tree["tokenizer"] = {"algorithm": "bpe", "vocab_size": 300}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        return "c.yaml"

    return write_config


COUNTED = "80 of 80 target sentences (100.0%) have BPE marks"
ACCEPTED = ("--set", "corpus.accept_processed=true")


def test_processed_text_is_refused_unless_the_config_accepts_it(mt, config, tmp_path):
    check, train = (("data", "check", "--config", "c.yaml"), ("train", "--config", "c.yaml"))
    config(pairs_of(target=bpe))
    status, out, err = mt(*check)
    assert status == 2 and f"PROBLEM in train: all.tsv: {COUNTED}" in out and "corpus.accept_processed" in err
    status, _, err = mt(*train)
    assert status == 2 and COUNTED in err and "line 1, line 2, line 3" in err and "corpus.accept_processed" in err
    assert not (tmp_path / "runs/t").exists()
    for command in (check, train):
        status, out, err = mt(*command, *ACCEPTED)
        assert status == 0 and "PROBLEM" not in out + err and f"note: train: all.tsv: {COUNTED}" in out + err, err
    assert mt(*train)[0] == 0, "a run that exists is not refused"


def test_a_word_level_tokenizer_needs_segmented_text(mt, config):
    path = config(beside_english(numbered(SEGMENTED["zh"][:1])), target="zh")
    for algorithm, expected in (("bpe", 2), ("word_level", 0)):
        status, out, _ = mt("data", "check", "--config", path, "--set", f"tokenizer.algorithm={algorithm}")
        assert status == expected and "80 of 80 target sentences (100.0%) have spaces between words" in out


def test_init_writes_nothing_for_processed_text_unless_accepted(mt, tmp_path):
    write(tmp_path / "all.tsv", [("en", "it"), *pairs_of(target=bpe)])
    command = ("init", "--file", "all.tsv", "--name", "new")
    status, out, err = mt(*command)
    assert status == 2 and not out and "BPE marks" in err and "--accept-processed" in err
    assert not (tmp_path / "new.yaml").exists()
    assert mt(*command, "--accept-processed")[0] == 0
    assert yaml.safe_load((tmp_path / "new.yaml").read_text(encoding="utf-8"))["corpus"]["accept_processed"] is True
