import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_trips import read, texts_of, translated

from mt_cli.features.documents.document import DocumentError
from mt_cli.features.documents.texts import balanced, display_width

SRT = """1
00:00:01,000 --> 00:00:02,500
Hello there, how
are you?

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600
{\\an8}<i>A sign</i>

3
00:00:05,000 --> 00:00:06,000
- Where is the big
old house?
- Over there.

4
00:00:07,000 --> 00:00:08,000
♪
"""
VTT = """WEBVTT - a title

STYLE
::cue { color: white }

NOTE a remark
that stays

REGION
id:fred

intro
00:01.000 --> 00:02.000 align:start line:0
<v Roger Bingham>We are in <c.loud>New York</c> &amp; &lt;here&gt;

00:03.000 --> 00:04.000
Second
"""


def test_text_of_cues_without_line_breaks_and_dashes(tmp_path):
    document = read(tmp_path, ".srt", SRT)
    assert texts_of(document) == [
        ("Hello there, how are you?",),
        ("{\\an8}<i>A sign</i>",),
        ("Where is the big old house?", "Over there."),
    ]
    assert document.counts == {"without_text": 1}


def test_numbers_times_and_dashes_stay(tmp_path):
    expected = (
        SRT.replace("Hello there, how\nare you?", "HELLO THERE,\nHOW ARE YOU?")
        .replace("<i>A sign</i>", "<I>A SIGN</I>")
        .replace("{\\an8}", "{\\AN8}")
        .replace("Where is the big\nold house?", "WHERE IS THE\nBIG OLD HOUSE?")
        .replace("Over there.", "OVER THERE.")
    )
    assert translated(read(tmp_path, ".srt", SRT), str.upper).decode() == expected


def test_headers_styles_notes_regions_and_settings_of_webvtt_stay(tmp_path):
    document = read(tmp_path, ".vtt", VTT)
    text = "<v Roger Bingham>We are in <c.loud>New York</c> & &lt;here&gt;"
    assert texts_of(document) == [(text,), ("Second",)]
    written = translated(document, lambda text: text.replace("We are", "A & B -->").replace("Second", "Zweite"))
    expected = VTT.replace("We are", "A &amp; B --&gt;").replace("Second", "Zweite")
    assert written.decode() == expected


@pytest.mark.parametrize("suffix", [".srt", ".vtt"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_identity_keeps_each_byte(tmp_path, suffix, mark, line_end):
    content = {".srt": SRT, ".vtt": VTT}[suffix].replace("\n", line_end)
    for text in (content, content.rstrip(), line_end * 3 + content if suffix == ".srt" else content):
        raw = mark + text.encode()
        document = read(tmp_path, suffix, raw)
        assert translated(document) == raw and len(document.units) == (3 if suffix == ".srt" else 2)


def test_mixed_line_ends_stay(tmp_path):
    raw = SRT.replace("\n\n", "\r\n\r\n").encode()
    assert translated(read(tmp_path, ".srt", raw)) == raw


def test_missing_and_additional_blank_lines_are_read(tmp_path):
    content = "1\n00:00:01,0 --> 00:00:02,0\nOne\n2\n00:00:03,0 --> 00:00:04,0\n\nTwo\n\nstill two\n\n\n"
    assert texts_of(read(tmp_path, ".srt", content)) == [("One",), ("Two",), ("still two",)]


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        ("- Yes.\n- No.", ("Yes.", "No.")),
        ("-Yes.\n-No.", ("Yes.", "No.")),
        ("Yes.\n- No.", ("Yes.", "No.")),
        ("– ¿Sí?\n– No.", ("¿Sí?", "No.")),
        ("it is 1\n- x in total", ("it is 1 - x in total",)),
        ("-x is well-\n-known.", ("x is well-", "known.")),
        ("-x is known.", ("-x is known.",)),
        ("--and then\nhe left.", ("--and then he left.",)),
        ("映画は\nこれです", ("映画はこれです",)),
        ("영화는\n이것", ("영화는 이것",)),
    ],
)
def test_dashes_of_speakers_are_told_from_others(tmp_path, lines, texts):
    assert texts_of(read(tmp_path, ".srt", f"1\n00:00:01,0 --> 00:00:02,0\n{lines}\n")) == [texts]


def test_thumbnails_of_players_are_no_text(tmp_path):
    content = "WEBVTT\n\n00:01.000 --> 00:02.000\nall.jpg#xywh=0,0,9,9\n"
    assert not read(tmp_path, ".vtt", content).units


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".srt", "Some text\nwithout times", "no subtitle with times"),
        (".srt", "1\n00:00:01,000 -> 00:00:02,000\nText\n", "line 2: not the times"),
        (".srt", "1\n00:00:01,000 -- 00:00:02,000\nText\n", "line 2: not the times"),
        (".srt", b"1\n00:00:01,0 --> 00:00:02,0\n\xe4\n", "line 3: not utf-8"),
        (".vtt", "1\n00:01.000 --> 00:02.000\nText\n", "line 1: a file of WebVTT begins"),
    ],
)
def test_damaged_subtitles_are_refused_with_their_place(tmp_path, suffix, content, message):
    with pytest.raises(DocumentError, match=message):
        read(tmp_path, suffix, content)


def test_translations_never_make_other_cues(tmp_path):
    document = read(tmp_path, ".vtt", VTT)
    hostile = "a\n\n00:05.000 --> 00:06.000\nb"
    again = read(tmp_path, ".vtt", translated(document, lambda text: hostile))
    assert texts_of(again) == [("a 00:05.000 --&gt; 00:06.000 b",)] * 2


words = st.text(st.sampled_from("abc é漢字。-<>"), min_size=1, max_size=60)


@given(words, st.integers(1, 4))
def test_balanced_lines_lose_nothing(text, num_lines):
    text = " ".join(text.split())
    lines = balanced(text, num_lines)
    assert len(lines) <= num_lines
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(line == line.strip() for line in lines)


def test_balanced_lines_are_about_equal_and_keep_tags_whole():
    text = "<v Roger Bingham>We are in the very large city of New York today"
    first, second = balanced(text, 2)
    assert first.startswith("<v Roger Bingham>") and abs(len(first) - 17 - len(second)) < 8
    assert [display_width(line) for line in balanced("漢字" * 8, 2)] == [16, 16]


@pytest.mark.parametrize("content", [SRT * 2000, SRT.replace("Hello", "Hello\nthere " * 50_000), "<" * 200_000])
def test_large_subtitles_are_read_in_linear_time(tmp_path, content):
    raw = ("1\n00:00:01,0 --> 00:00:02,0\n" + content).encode()
    document = read(tmp_path, ".srt", raw)
    assert translated(document) == raw
    translated(document, str.upper)
