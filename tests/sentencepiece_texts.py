"""Generated text in which tokenizers differ most easily: spaces, markers, names of entries, marks, emoji, controls."""

import random

ODD = [
    *("\x00", "\x01", "\x10", "\t", "\u00a0", "\u3000", "▁", "▁▁", "  ", "   ", "\u2028", "\u200b", "\ufeff", "\ufffd"),
    *("😀", "👩‍👩‍👧", "\U0001f1e9\U0001f1ea", "<0x41>", "[PAD]", "</s>", "<s>", "<unk>", "<sep>", "￭", "aaaaaaa"),
    *("ababab", "e\u0301", "ل\u0651\u0650", "ெ\u0bbe", "漢字", "ไทย", "ﬁ", "½", "ǅ", "¿", "_"),
]


def odd_texts(lines, number, seed=1):
    """Texts of spaces alone, of odd strings, of odd strings in real lines, and of random characters of Unicode."""
    chance = random.Random(seed)
    blocks = (range(0x20, 0x250), range(0x370, 0x3000), range(0x3000, 0xD7FF), range(0x10000, 0x1FFFF))

    def with_odd_string():
        line = chance.choice(lines)
        place = chance.randrange(len(line) + 1)
        return line[:place] + chance.choice(ODD) + line[place:]

    kinds = [
        lambda: "".join(chance.choices(ODD, k=chance.randrange(1, 8))),
        with_odd_string,
        lambda: "".join(chr(chance.choice(chance.choice(blocks))) for _ in range(chance.randrange(1, 30))),
        lambda: "".join(chance.choices("ab c▁ .", k=chance.randrange(1, 25))),
    ]
    return ["", " ", "▁", " ▁", "▁ ", "   ", "▁▁▁", *(chance.choice(kinds)() for _ in range(number))]
