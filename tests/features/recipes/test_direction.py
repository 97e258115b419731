"""`mt init` with varieties of languages, and with languages in the other direction than the text."""

import pytest

from mt_cli.features.recipes.direction import is_reversed
from mt_cli.features.recipes.varieties import languages_of_headers

ENGLISH = [f"the open window of the house {n} is near the river" for n in range(40)]
ITALIAN = [f"la finestra aperta della casa {n} è vicino al fiume" for n in range(40)]
PORTUGUESE = [f"a janela aberta da casa {n} fica perto do rio" for n in range(40)]
MADE_UP = [f"xq zv wum {n}" for n in range(40)]


def shown(mt):
    """The first pair of the config, as it is trained on."""
    lines = mt("data", "show", "--config", "new.yaml", "-n", "1")[1].splitlines()
    return lines[1].split(maxsplit=1)[1], lines[3].split(maxsplit=1)[1]


def write_memory(path, **texts):
    """A translation memory; each keyword is a language code with `_` for `-`, and its segments."""
    units = zip(*([f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>' for text in side]
                  for code, side in texts.items()), strict=True)  # fmt: skip
    path.write_text(f"<tmx><body>{''.join(f'<tu>{unit}</tu>' for unit in map(''.join, units))}</body></tmx>")


def write_catalogue(path, language, sources, targets):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f'msgid ""\nmsgstr "Language: {language}\\n"\n\n'.replace('"Language', '""\n"Language') if language else ""
    messages = (f'msgid "{one}"\nmsgstr "{other}"\n' for one, other in zip(sources, targets, strict=True))
    path.write_text(header + "\n".join(messages), encoding="utf-8")


def test_a_memory_with_two_varieties_asks_which_one_is_meant(init, mt, tmp_path):
    write_memory(tmp_path / "m.tmx", en=ENGLISH, pt_BR=PORTUGUESE, pt_PT=MADE_UP)
    message = "there are the languages en (40 segments), pt-BR (40), pt-PT (40); choose with --target-language, such as"
    assert message in init("--file", "m.tmx")[0]
    assert (
        "several varieties of it: pt-BR (40 segments), pt-PT (40)"
        in init("--file", "m.tmx", "--target-language", "pt")[0]
    )
    err, corpus = init("--file", "m.tmx", "--target-language", "pt_PT")
    assert corpus.languages == ("en", "pt_PT")
    assert "note: m.tmx: `pt_PT` is read from pt-PT (40 segments); not read: pt-BR (40 segments)" in err
    assert shown(mt) == (ENGLISH[0], MADE_UP[0])
    (tmp_path / "c.yaml").write_text(
        "name: c\ncorpus: {source: en, target: pt, train: {file: m.tmx}, valid: {fraction: 0.2}}\n"
    )
    status, _, err = mt("data", "check", "--config", "c.yaml")
    assert status == 2 and "`pt` fits several varieties equally well: pt-BR (40 segments), pt-PT (40)" in err
    status, _, err = mt("data", "show", "--config", "c.yaml", "--set", "corpus.train.columns=[en,pt-PT]")
    assert status == 0, err


def test_a_memory_of_one_variety_is_called_by_its_language_and_unlikely_script(init, mt, tmp_path):
    write_memory(tmp_path / "m.tmx", EN_us=ENGLISH, sr_Latn_RS=MADE_UP)
    assert init("--file", "m.tmx")[1].languages == ("en", "sr_Latn")
    assert shown(mt) == (ENGLISH[0], MADE_UP[0])


def test_two_varieties_of_one_language_can_be_the_sides(init, mt, tmp_path):
    write_memory(tmp_path / "m.tmx", pt_BR=PORTUGUESE, pt_PT=MADE_UP)
    assert init("--file", "m.tmx", "--source-language", "pt_PT")[1].languages == ("pt_PT", "pt_BR")
    assert shown(mt) in zip(MADE_UP, PORTUGUESE, strict=True)


def test_a_variety_in_a_folder_of_memories_is_chosen_for_all_files(init, mt, tmp_path):
    (tmp_path / "tm").mkdir()
    write_memory(tmp_path / "tm/a.tmx", en=ENGLISH[:20], pt_BR=PORTUGUESE[:20])
    write_memory(tmp_path / "tm/b.tmx", en=ENGLISH[20:], pt_PT=MADE_UP[20:])
    assert "pt-BR (20), pt-PT (20); choose with --target-language" in init("tm")[0]
    init("tm", "--target-language", "pt_BR")
    out = mt("data", "check", "--config", "new.yaml")[1]
    assert "blank_target" in out and MADE_UP[20] not in out


REVERSED_FOLDERS = [("--source-language", "it", "--target-language", "en"), ("--source-language", "it")]


@pytest.mark.parametrize("arguments", [*REVERSED_FOLDERS, ("--target-language", "en")])
def test_catalogues_are_reversed_if_the_languages_are_given_in_the_other_order(init, mt, tmp_path, arguments):
    write_catalogue(tmp_path / "po/a.po", "it", ENGLISH, ITALIAN)
    write_catalogue(
        tmp_path / "held/b.po", "it", [f"{text} too" for text in ENGLISH], [f"anche {text}" for text in ITALIAN]
    )
    err, corpus = init("po", *arguments, "--valid", "held")
    assert corpus.languages == ("it", "en") and corpus.train[0].reverse and corpus.valid[0].reverse
    assert "note: po (**/*.po): is en to it; `reverse: true` exchanges its sides" in err
    assert shown(mt) == (ITALIAN[0], ENGLISH[0])


def test_files_are_reversed_with_those_beside_them(init, mt, tmp_path):
    for name, lines in {
        "train.en": ENGLISH,
        "train.qq": MADE_UP,
        "valid.en": ENGLISH[::-1],
        "valid.qq": MADE_UP[::-1],
    }.items():
        (tmp_path / name).write_text("".join(f"{line} {name[:5]}\n" for line in lines), encoding="utf-8")
    _, corpus = init("--files", "train.en", "train.qq", "--source-language", "qq", "--target-language", "en")
    assert corpus.train[0].reverse and corpus.valid[0].reverse
    assert shown(mt) == (f"{MADE_UP[0]} train", f"{ENGLISH[0]} train")
    _, corpus = init("--files", "train.en", "train.qq", "--valid", "valid.qq", "--valid", "valid.en")
    assert not corpus.train[0].reverse and corpus.valid[0].reverse


def test_a_given_language_that_is_no_exchange_wins_over_a_header(init, tmp_path):
    write_catalogue(tmp_path / "a.po", "it", ENGLISH, MADE_UP)
    for arguments in (("--target-language", "qu"), ("--source-language", "en", "--target-language", "ay")):
        corpus = init("a.po", *arguments)[1]
        assert (corpus.source, corpus.target, corpus.train[0].reverse) == ("en", arguments[-1], False)


@pytest.mark.parametrize(
    ("given", "names", "seen", "expected"),
    [
        (("it", "en"), ("en", "it"), (None, None), True),
        (("it", "en"), (None, "it"), (None, None), True),
        (("it", None), (None, "it"), (None, None), True),
        ((None, "en"), (None, "it"), ("en", None), True),
        (("pt_PT", "pt_BR"), ("pt-BR", "pt-PT"), ("pt", "pt"), True),
        (("pt_BR", "pt_PT"), ("pt-BR", "pt-PT"), ("pt", "pt"), False),
        (("it", "en"), ("en", "it"), ("it", "en"), False),  # The names are wrong.
        (("en", "it"), ("en", "it"), ("en", "it"), False),
        (("en", "gl"), (None, "es"), ("en", "es"), False),
        ((None, None), ("en", "it"), ("it", "en"), False),
        (("it", "fr"), (None, None), ("en", "it"), False),
        (("it", "en"), (None, None), (None, None), False),
        (("en", "it"), (None, None), ("en", "en"), False),
    ],
)
def test_sides_are_exchanged_only_if_text_or_names_say_so(given, names, seen, expected):
    assert is_reversed(given, names, seen) is expected


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ({"es": 353, "es_CO": 13}, ["es"]),
        ({"es_CO": 13, "es": 353}, ["es"]),
        ({"es_CO": 5, "es": 5}, ["es"]),
        ({"es": 10, "es_ES": 90}, ["es_ES"]),
        ({"de": 60, "fr": 1}, ["de"]),
        ({"de": 60, "de_AT": 10, "fr": 30}, ["de", "fr"]),
        ({"pt_BR": 60, "pt_PT": 40}, ["pt_BR", "pt_PT"]),
        ({"sr": 50, "sr_Latn": 50}, ["sr", "sr_Latn"]),
        ({}, []),
    ],
)
def test_the_language_of_most_headers_is_that_of_a_folder(counts, names):
    found, notes = languages_of_headers(counts)
    assert sorted(found) == sorted(names)
    others = [code for code in counts if code not in names]
    assert len(notes) == bool(others and len(names) == 1)
    assert all(f"{counts[code]:,} {code}" in note for note in notes for code in counts if code not in names)


def test_headers_that_say_otherwise_are_counted_in_a_note(init, tmp_path):
    for number in range(8):
        rows = ENGLISH[number * 5 : number * 5 + 5], ITALIAN[number * 5 : number * 5 + 5]
        write_catalogue(tmp_path / f"po/{number}.po", "it_CH" if number in (0, 7) else "it", *rows)
    err, corpus = init("po", "--source-language", "en")
    assert corpus.target == "it"
    assert "note: po (**/*.po): 6 of 8 headers say it, the others 2 it_CH" in err


def test_headers_that_name_another_language_than_the_given_one_are_noted(init, tmp_path):
    write_catalogue(tmp_path / "po/a.po", "it", ENGLISH, MADE_UP)
    given = ("--source-language", "en", "--target-language")
    err, corpus = init("po", *given, "gn")
    assert corpus.target == "gn" and "the headers say it, and neither en nor gn" in err
    assert "the headers say" not in init("po", *given, "it")[0]
