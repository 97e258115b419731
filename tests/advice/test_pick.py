from mt_cli.advice.pick import pick

CORPUS = [f"the cat sees the {animal}." for animal in ("dog", "cow", "hen", "fox")]


def test_lines_that_the_corpus_covers_are_not_picked():
    new = ["a printer prints a page.", "a printer eats a page."]
    picked, left_out = pick([*CORPUS, *new], CORPUS, "en", 10)
    assert set(picked) <= {*new} and picked
    assert left_out["nothing new"] == len(CORPUS)


def test_picked_lines_are_not_like_each_other():
    printers = [f"the printer prints page number {number} again." for number in ("one", "two", "three")]
    ships = [f"a ship sails over the {sea} ocean." for sea in ("blue", "cold")]
    picked, _ = pick([*printers, *ships], CORPUS, "en", 2)
    assert {line.split()[1] for line in picked} == {"printer", "ship"}


def test_a_smaller_number_picks_a_prefix():
    lines = [f"{verb} the {noun} here now." for verb in ("open", "close", "move") for noun in ("file", "window", "tab")]
    picked = [pick(lines, CORPUS, "en", number)[0] for number in (3, 6)]
    assert picked[0] == picked[1][:3] and len(set(picked[1])) == 6


def test_frequent_words_come_before_rare_ones():
    lines = [
        *[f"file {word} is here." for word in ("one", "two", "three")],
        "tree alpha was there.",
        "tree beta was there.",
    ]
    assert pick(lines, CORPUS, "en", 1)[0][0].startswith("file")


def test_fragments_and_endless_lines_are_left_out():
    lines = ["File menu", "File menu", "file " * 200, "file " * 199, "open the file menu now.", "open the file menu."]
    picked, left_out = pick(lines, CORPUS, "en", 10)
    assert (left_out["too short"], left_out["too long"]) == (2, 2)
    assert all(line.startswith("open") for line in picked)
    assert pick([], CORPUS, "en", 10)[0] == []


def test_languages_without_spaces_are_picked_by_characters():
    lines = ["猫在睡觉。", "打印机在打印一页。", "打印机没有打印。"]
    picked, _ = pick(lines, ["猫在睡觉。", "狗和猫都在那里睡觉。"], "zh", 5)
    assert "猫在睡觉。" not in picked and picked
