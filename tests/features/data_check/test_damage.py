"""Text that other programs have processed or that is damaged: what is reported, with counts, and what is not."""

import json
import re

import pytest
import yaml
from texts import TEXTS

from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.cleaning import KEPT
from mt_cli.corpus.reading import read_corpora
from mt_cli.features.data_check.damage import find_damage

ENGLISH, ITALIAN = TEXTS["eng_Latn"], TEXTS["ita_Latn"]
KINDS = {"processed", "segmented"}


def lines_of(text, number=80, start=0):
    """Different lines made of a text, whose sentences come one after the other."""
    sentences = text.split("\n")
    numbers = range(start, start + number)
    return [f"{number // len(sentences)} {sentences[number % len(sentences)]}" for number in numbers]


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


@pytest.fixture
def damage(tmp_path):
    """A function that returns the problems and notes on pairs in the languages `both`, and in `valid` if given."""

    def find(pairs, both=("en", "it"), valid=None, **options):
        write(tmp_path / "train.tsv", pairs)
        tree = {"source": both[0], "target": both[1], "train": {"file": str(tmp_path / "train.tsv")}, **options}
        tree["valid"] = {"fraction": 0.1}
        if valid is not None:
            write(tmp_path / "valid.tsv", valid)
            tree["valid"] = {"file": str(tmp_path / "valid.tsv")}
        config = parse_config({"name": "t", "corpus": tree}, "test").corpus
        corpora = read_corpora(config, 1, Cache(tmp_path / "cache"))
        return list(find_damage({name: each for name, each in corpora.items() if each.code == KEPT}, config))

    return find


def bpe(line):
    return " ".join(f"{word[:2]}@@ {word[2:]}" if len(word) > 3 else word for word in line.split())


def sentencepiece(line):
    return " ".join(f"▁{word[:3]} {word[3:]}".strip() for word in line.split())


def tokenised(line):
    return re.sub(r"([.,!?])", r" \1", line).replace("'", "' ")


PROCESSED = {
    "BPE": bpe,
    "OpenNMT": lambda line: tokenised(line).replace(" .", " ￭."),
    "GPT": lambda line: " ".join(f"{word[:2]} {word[2:]}</w>" for word in line.split()),
    "byte-level": lambda line: "".join(f" Ġ{word}" for word in line.split()).strip(),
    "SentencePiece": sentencepiece,
    "WordPiece": lambda line: " ".join(f"{word[:2]} ##{word[2:]}" if len(word) > 3 else word for word in line.split()),
    "byte pieces": lambda line: f"{line} <0xF0> <0x9F>",
    "Moses": tokenised,
    "letters": lambda line: " ".join(line.replace(" ", "_")),
    "sentence": lambda line: f"<s> {line} </s>",
    "padding": lambda line: f"{line} <pad> <pad>",
    "unknown": lambda line: line.replace(" e", " <unk>").replace(" i", " [UNK]").replace(" t", " ⁇ "),
    "Keras": lambda line: f"[start] {line} [end]",
    "factors": lambda line: " ".join(f"{word.lower()}￨C" for word in line.split()),
    "underscores": lambda line: " ".join(f"_{word[:3]} {word[3:]}".strip() for word in line.split()),
    "Tensor2Tensor": lambda line: " ".join(f"{word}_" for word in line.split()),
    "BERT": lambda line: f"[CLS] {line} [SEP]",
    **{
        tag: lambda line, tag=tag: f"{tag} {line}"
        for tag in (
            "<2it>",
            ">>ita<<",
            "__it__",
            "__ita_Latn__",
            "ita_Latn",
            "it_IT",
            "[2it]",
            "[it]",
            "<it>",
            "<bt>",
            "@it@",
        )
    },
    "T5": lambda line: f"translate English to Italian: {line}",
    "NLLB at the end": lambda line: f"{line} </s> ita_Latn",
    "tag at the end": lambda line: f"{line} eng_Latn",
}


@pytest.mark.parametrize("name", PROCESSED)
def test_processed_text_is_a_problem_with_its_places(damage, name):
    sides = [lines_of(ENGLISH), lines_of(ITALIAN)]
    changed = [[PROCESSED[name](line) for line in side] for side in sides]
    found = [each for each in damage(list(zip(*changed, strict=True))) if each.kind in KINDS and not each.is_note]
    for side, before, after in zip(("source", "target"), sides, changed, strict=True):
        of_side = [each for each in found if f" {side} sentences" in each.text]
        assert of_side and all(before[each.first - 1] != after[each.first - 1] for each in of_side)
    assert all(each.corpus == "train" and re.search(r"\(line \d+, line \d+, line \d+\)", each.text) for each in found)


@pytest.mark.parametrize("side", ["source", "target"])
def test_processed_text_is_reported_on_its_side_alone(damage, side):
    pairs = zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True)
    found = damage([(bpe(a), b) if side == "source" else (a, bpe(b)) for a, b in pairs])
    assert [f" {side} sentences" in each.text for each in found] == [True]


@pytest.mark.parametrize("code", TEXTS)
def test_text_as_people_write_it_has_neither_marks_nor_damage(damage, code):
    sources = zip(lines_of(ITALIAN), lines_of(TEXTS[code]), strict=True)
    assert damage([(f"x {source}", target) for source, target in sources], ("qq", code)) == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("fr", ["Où est la gare ?", "Quel dommage !", "Voici : le pain ; l'eau.", "« Oui, dit-il. »"]),
        ("en", ["Well ... I see.", "It is .5 of that, at most.", "See :ref:`this . that`, please.", "A set of 3, 4."]),
        (
            "en",
            ["Type ``x , y`` there.", "the hunk @@ -1,3 +1,4 @@ of a diff.", "Call __init__ first.", "# Heading, 1."],
        ),
        ("de", ["## Überschrift, neu.", "C# und C++ sind neu.", "Der Name <b>Haus</b>, so.", "[1] Siehe auch dort."]),
        ("hi", ["वह घर है ।", "मैं पानी पीता हूँ ।", "यह किताब है, और वह नहीं ।", "हम, तुम और वे।"]),
    ],
)
def test_what_a_language_or_markup_writes_with_spaces_is_no_tokenised_text(damage, code, lines):
    targets = [f"{number} {lines[number % 4]}" for number in range(80)]
    sources = [f"{number} x{number} y" for number in range(80)]
    found = damage(list(zip(sources, targets, strict=True)), ("xx", code), filters={"min_script_share": None})
    assert not [each for each in found if each.kind in KINDS and not each.is_note]


SEGMENTED = {
    "zh": ("今天 天气 很 好 ， 我们 去 公园 。", "今天天气很好，我们去公园。"),
    "ja": ("今日 は 天気 が いい です 。", "今日は天気がいいです。"),
    "th": ("วันนี้ อากาศ ดี มาก เรา ไป สวน กัน", "วันนี้อากาศดีมาก เราไปสวนกัน"),
}


@pytest.mark.parametrize("code", SEGMENTED)
def test_segmented_text_is_a_problem_where_words_have_no_spaces(damage, code):
    for text, is_found in zip(SEGMENTED[code], (True, False), strict=True):
        targets = [f"{text} {number}" for number in range(80)]
        found = damage(list(zip(lines_of(ENGLISH), targets, strict=True)), ("en", code))
        assert [(each.kind, each.is_note) for each in found] == [("segmented", False)] * is_found


def test_a_few_slips_are_no_problem_and_a_tokenised_part_is_a_note(damage):
    pairs = list(zip(lines_of(ENGLISH, 400), lines_of(ITALIAN, 400), strict=True))
    for number, expected in ((2, set()), (8, set()), (120, {True}), (300, {False})):
        changed = [(a, tokenised(b)) for a, b in pairs[:number]] + pairs[number:]
        assert {each.is_note for each in damage(changed)} == expected, number


def test_a_tag_of_the_config_is_no_damage_and_another_one_is(damage):
    pairs = [(f"<2it> {a}", b) for a, b in zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True)]
    assert damage(pairs, tag="to_target") == []
    assert [each.kind for each in damage(pairs)] == ["processed"]
    assert [each.kind for each in damage([(a, f"<2en> {b}") for a, b in pairs], tag="to_target")] == ["processed"]


def test_the_text_of_both_directions_is_reported_once(damage):
    pairs = list(zip(map(bpe, lines_of(ENGLISH)), lines_of(ITALIAN), strict=True))
    (found,) = damage(pairs, both_directions=True, tag="to_target")
    assert "source sentences" in found.text


CYRILLIC = ["Сестра чисти стару лампу увече.", "Учитељ отвара прозор после школе."]
LATIN = ["Sestra čisti staru lampu uveče.", "Učitelj otvara prozor posle škole."]


def serbian(number, start=0, latin=2):
    """Numbered pairs of which every `latin`-th one is in Latin letters."""
    numbers = range(start, start + number)
    return [(f"X{n} {n}", f"{(LATIN if n % latin == 0 else CYRILLIC)[n // 2 % 2]} {n}") for n in numbers]


def test_two_scripts_of_a_language_are_counted_with_their_places(damage):
    (note,) = damage(serbian(100), ("en", "sr"))
    assert note.is_note and "50 in Latin" in note.text and "50 in Cyrillic" in note.text and "sr_" in note.text
    assert "(line 1, line 3, line 5)" in note.text and "(line 2, line 4, line 6)" in note.text
    assert damage(serbian(100, latin=101)[1:], ("en", "sr")) == []


def test_names_in_another_script_are_no_second_script(damage):
    pairs = [(f"x{n} {n}", f"{CYRILLIC[n % 2]} Linux {n}" if n % 10 else f"Linux {n}") for n in range(1, 100)]
    assert damage(pairs, ("en", "sr")) == []


def test_japanese_and_korean_mix_scripts_without_a_note(damage):
    for code, lines in (
        ("ja", ["今日は東京に行きます。", "コンピュータを使用する。", "ひらがなだけのぶん。"]),
        ("ko", ["오늘 학교에 갑니다."]),
    ):
        targets = [f"{lines[n % len(lines)]} {n}" for n in range(80)]
        assert damage(list(zip(lines_of(ENGLISH), targets, strict=True)), ("en", code)) == []


def test_simplified_and_traditional_characters_are_two_scripts(damage):
    sentences = ["我们在学校学习这个语言。", "我們在學校學習這個語言。"]
    mixed = [(line, f"{sentences[n % 2]} {n}") for n, line in enumerate(lines_of(ENGLISH))]
    (note,) = damage(mixed, ("en", "zh"))
    assert "40 in simplified Han" in note.text and "40 in traditional Han" in note.text
    for code in ("zh", "zh_Hant", "zh-TW"):
        found = damage([(line, f"{sentences[0]} {n}") for n, line in enumerate(lines_of(ENGLISH))], ("en", code))
        assert [each.kind for each in found] == (["scripts"] if code != "zh" else [])


def test_an_evaluation_set_in_another_script_or_case_is_noted(damage):
    cyrillic, latin = serbian(80, latin=1_000)[1:], serbian(20, start=500, latin=1)
    (note,) = damage(cyrillic, ("en", "sr"), valid=latin)
    assert note.corpus == "valid" and "sr is in Latin" in note.text and "Cyrillic in train" in note.text
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    valid = list(zip(lines_of(ENGLISH, 20, 200), lines_of(ITALIAN, 20, 200), strict=True))
    assert damage(pairs, valid=valid) == []
    (note,) = damage([(a, b.lower()) for a, b in pairs], valid=valid)
    assert note.corpus == "valid" and "hardly any in train (0 of 80)" in note.text


def test_a_known_language_without_capital_letters_is_noted(damage):
    pairs = list(zip(lines_of(ENGLISH, 120), lines_of(ITALIAN, 120), strict=True))
    assert damage(pairs) == []
    (note,) = damage([(a, b.lower()) for a, b in pairs])
    assert note.is_note and "0 of 120 sentences in it have capital letters" in note.text
    assert damage([(a, b.lower()) for a, b in pairs], ("en", "hch")) == []


def test_letters_of_a_made_up_language_are_no_spelled_words(damage):
    pairs = [(" ".join(f"abcdefgh{n:08b}".replace("0", "x").replace("1", "y")), f"x {n}") for n in range(80)]
    assert damage(pairs, ("letters", "reversed"), filters={"max_length_ratio": None}) == []
    assert damage(pairs, ("en", "reversed"), filters={"max_length_ratio": None})[0].kind == "processed"


def test_processed_evaluation_text_is_found(damage):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    valid = list(zip(lines_of(ENGLISH, 20, 200), map(tokenised, lines_of(ITALIAN, 20, 200)), strict=True))
    (found,) = damage(pairs, valid=valid)
    assert (found.corpus, found.kind) == ("valid", "processed") and "20 of 20 target sentences" in found.text


def test_contradictory_targets_are_noted_and_alternatives_are_not(damage):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    other = [(a, f"{b[::-1]} altro") for a, b in pairs]
    valid = list(zip(lines_of(ENGLISH, 9, 900), lines_of(ITALIAN, 9, 900), strict=True))
    (note,) = damage(pairs + other, valid=valid)
    assert note.is_note and "80 of 80 sources have several different targets (100% of the pairs), up to 2" in note.text
    assert "(line 1, line 81)" in note.text
    assert damage(pairs + other[:8], valid=valid) == []
    assert damage(pairs + [(a, b.upper().replace(".", "!")) for a, b in pairs], valid=valid) == []
    many = [("the same", f"{word} {n}") for n, word in enumerate("abcdefghijklmnopqrstuvwxyz")]
    (note,) = damage(pairs + many, valid=valid)
    assert "up to 26" in note.text and "the same" in note.text


def test_targets_that_a_tag_tells_apart_do_not_contradict(damage, tmp_path):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    write(tmp_path / "formal.tsv", [(a, f"{b[::-1]} altro") for a, b in pairs])
    sources = [{"file": str(tmp_path / "train.tsv")}, {"file": str(tmp_path / "formal.tsv"), "tag": "<formal>"}]
    assert damage(pairs, train=sources) == []


def koi8(line):
    return line.encode("koi8-r").decode("cp1251")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda line: line.replace(" ", " \ufeff", 1), "byte order mark"),
        (lambda line: line.replace("o", "o\u200b", 1), "invisible"),
        (lambda line: line.replace(" ", "\\n", 1), "escapes"),
        (lambda line: line.replace("a", "?", 1) + " ca?e", "question marks"),
        (lambda line: f"{line} Å¡koly", "garbled"),
        (lambda line: f"{line} Tom &amp; Jerry", "entities"),
        (lambda line: f"{line} <b>ora</b>", "tags (`<b>`)"),
    ],
)
def test_damage_is_noted_with_counts_and_places(damage, change, what):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    changed = [(a, change(b)) if n % 8 == 0 else (a, b) for n, (a, b) in enumerate(pairs)]
    (note,) = damage(changed)
    assert note.is_note and note.kind == "text" and what in note.text and note.text.startswith("10 of 80 ")
    assert changed[0][1][:30] in note.text
    assert "(line 1, line 9, line 17)" in note.text


def test_cyrillic_in_a_wrong_encoding_looks_garbled(damage):
    lines = ["Сегодня мы идём домой.", "Мой брат читает книгу в саду."]
    for change in (koi8, lambda line: line.encode().decode("cp1251", "replace").replace("\ufffd", "")):
        targets = [f"{change(lines[n % 2])} {n}" for n in range(80)]
        found = damage(list(zip(lines_of(ENGLISH), targets, strict=True)), ("en", "xx"))
        assert any("garbled" in each.text for each in found)
    assert damage([(f"x {n}", f"{lines[n % 2]} {n}") for n in range(80)], ("en", "ru")) == []


def test_a_folder_names_the_file_and_the_line_of_each_place(mt, tmp_path):
    for number, name in enumerate(("a.po", "b.po")):
        entries = zip(lines_of(ENGLISH, 20, 20 * number), map(bpe, lines_of(ITALIAN, 20, 20 * number)), strict=True)
        text = "".join(f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in entries)
        header = 'msgid ""\nmsgstr "Language: it\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
        (tmp_path / "po" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "po" / name).write_text(header + text, encoding="utf-8")
    status, out, err = mt("data", "check", "po")
    assert status == 2, err
    (line,) = (line for line in out.splitlines() if line.startswith("PROBLEM") and "BPE marks" in line)
    assert "(a.po, line 4, a.po, line 7, a.po, line 10)" in line


@pytest.fixture
def config(tmp_path):
    """A function that writes `c.yaml` with these pairs and options of `corpus`, and returns its name."""

    def write_config(pairs, valid=None, **options):
        write(tmp_path / "all.tsv", pairs)
        write(tmp_path / "valid.tsv", valid or zip(lines_of(ENGLISH, 9, 900), lines_of(ITALIAN, 9, 900), strict=True))
        corpus = {"source": "en", "target": "it", "train": {"file": "all.tsv"}, "valid": {"file": "valid.tsv"}}
        tree = {
            "name": "t",
            "corpus": corpus | options,
            "tokenizer": {"algorithm": "bpe", "vocab_size": 300},
            "decoding": {"beam_size": 1, "max_length": 12},
            "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
            "training": {"max_steps": 2, "batch_tokens": 500, "warmup_steps": 1, "num_pictures": 0, "device": "cpu"},
            "evaluation": {"num_resamples": 10},
        }
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        return "c.yaml"

    return write_config


def bpe_pairs():
    return list(zip(lines_of(ENGLISH), map(bpe, lines_of(ITALIAN)), strict=True))


def test_processed_text_ends_a_check_with_status_2_unless_the_config_accepts_it(mt, config):
    status, out, err = mt("data", "check", "--config", config(bpe_pairs()))
    assert status == 2 and "PROBLEM in train: all.tsv: 80 of 80 target sentences (100.0%) have BPE marks" in out
    assert "set corpus.accept_processed to true" in err
    accepted = ("--set", "corpus.accept_processed=true")
    status, out, err = mt("data", "check", "--config", "c.yaml", *accepted)
    assert status == 0 and "PROBLEM" not in out and "note: train: all.tsv: 80 of 80 target sentences" in out, err
    report = json.loads(mt("data", "check", "--config", "c.yaml", "--json")[1])
    (problem,) = report["problems"]
    assert {
        "corpus": "train",
        "part": "all.tsv",
        "first": 1,
        "last": 80,
        "kind": "processed",
    }.items() <= problem.items()


def test_a_new_run_on_processed_text_is_refused_before_it_trains(mt, config, tmp_path):
    status, _, err = mt("train", "--config", config(bpe_pairs()))
    assert status == 2 and "80 of 80 target sentences" in err and "line 1, line 2, line 3" in err, err
    assert "corpus.accept_processed" in err and not (tmp_path / "runs/t").exists()
    status, _, err = mt("train", "--config", "c.yaml", "--set", "corpus.accept_processed=true")
    assert status == 0 and "note: train: all.tsv: 80 of 80 target sentences" in err, err


def test_a_run_that_exists_is_not_refused_when_it_resumes(mt, config):
    accepted = ("--set", "corpus.accept_processed=true")
    assert mt("train", "--config", config(bpe_pairs()), *accepted)[0] == 0
    status, _, err = mt("train", "--config", "c.yaml", "--set", "training.max_steps=3")
    assert status == 0, err
    assert mt("train", "--config", "c.yaml", "--fresh")[0] == 2


def test_processed_evaluation_text_is_a_note(mt, config):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    valid = list(zip(lines_of(ENGLISH, 9, 900), map(tokenised, lines_of(ITALIAN, 9, 900)), strict=True))
    for command in (("data", "check"), ("train",)):
        status, out, err = mt(*command, "--config", config(pairs, valid))
        assert status == 0 and "note: valid: valid.tsv: 9 of 9 target sentences" in out + err, err
        assert "PROBLEM" not in out + err


def test_a_stream_is_examined_on_its_first_rows(mt, config, tmp_path):
    tree = yaml.safe_load((tmp_path / config(bpe_pairs())).read_text(encoding="utf-8"))
    tree["corpus"]["train"]["streaming"] = True
    tree["training"] |= {"validate_every_steps": 2, "schedule": "constant"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    for command in (("data", "check"), ("train",)):
        status, out, err = mt(*command, "--config", "c.yaml")
        assert status == 2 and "80 of 80 target sentences (100.0%) have BPE marks" in out + err, err
    assert mt("train", "--config", "c.yaml", "--set", "corpus.accept_processed=true")[0] == 0


def test_segmented_text_is_what_a_word_level_tokenizer_needs(mt, config):
    targets = [f"{SEGMENTED['zh'][0]} {number}" for number in range(80)]
    path = config(list(zip(lines_of(ENGLISH), targets, strict=True)), target="zh")
    for algorithm, expected in (("bpe", 2), ("word_level", 0)):
        status, out, _ = mt("data", "check", "--config", path, "--set", f"tokenizer.algorithm={algorithm}")
        assert status == expected and "80 of 80 target sentences (100.0%) have spaces between words" in out


def test_init_writes_nothing_for_processed_text_unless_it_is_accepted(mt, tmp_path):
    write(tmp_path / "all.tsv", [("en", "it"), *bpe_pairs()])
    status, out, err = mt("init", "--file", "all.tsv", "--name", "new")
    assert status == 2 and not out and "BPE marks" in err and "--accept-processed" in err
    assert not (tmp_path / "new.yaml").exists()
    status, _, err = mt("init", "--file", "all.tsv", "--name", "new", "--accept-processed")
    assert status == 0 and "note: train: all.tsv: 80 of 80 target sentences" in err, err
    assert yaml.safe_load((tmp_path / "new.yaml").read_text(encoding="utf-8"))["corpus"]["accept_processed"] is True


def test_init_names_two_scripts(mt, tmp_path):
    write(
        tmp_path / "all.tsv",
        [("en", "sr"), *((a, b) for (_, b), a in zip(serbian(80), lines_of(ENGLISH), strict=True))],
    )
    status, _, err = mt("init", "--file", "all.tsv")
    assert status == 0 and "note: train: sentences in sr are in 2 scripts: 40 in Latin" in err, err


def test_the_number_of_contradictory_sources_is_counted(mt, config):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    status, out, err = mt("data", "check", "--config", config([*pairs, (pairs[0][0], "altro")]))
    assert status == 0 and "sources of train with several different targets: 1 of 80" in out, err


def test_a_child_on_processed_text_is_refused_as_any_new_run(mt, config):
    pairs = list(zip(lines_of(ENGLISH), lines_of(ITALIAN), strict=True))
    assert mt("train", "--config", config(pairs))[0] == 0
    config(bpe_pairs())
    child = ("--set", "name=child", "--set", "init.run=runs/t")
    status, _, err = mt("train", "--config", "c.yaml", *child)
    assert status == 2 and "80 of 80 target sentences (100.0%) have BPE marks" in err, err
    assert mt("train", "--config", "c.yaml", *child, "--set", "corpus.accept_processed=true")[0] == 0
