"""HTML documents: only text changes, and elements, attributes and entities stay."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.features.documents.document import DocumentError, Options
from mt_cli.features.documents.formats import read_document


class Tree(HTMLParser):
    """Tags, comments and texts of a page."""

    def __init__(self, content):
        super().__init__()
        self.nodes = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.nodes.append((tag, *attrs))

    def handle_endtag(self, tag):
        self.nodes.append(f"/{tag}")

    def handle_comment(self, data):
        self.nodes.append(f"!{data}")

    def handle_decl(self, decl):
        self.nodes.append(f"!{decl}")

    def handle_data(self, data):
        self.nodes.append(f" {data}")


def read(tmp_path, content, name="a.html", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return read_document(path, Options())


def translated(document, translate=str.upper):
    return document.replaced(
        {
            index: unit.write([translate(text) for text in unit.texts], False)
            for index, unit in enumerate(document.units)
        }
    ).decode(document.encoding)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("<p>a &amp; b</p><div>c<p>d</div>", ["a & b", "c", "d"]),
        ("<p>see <a href='x'>the <b>page</b></a>!</p>", ["see <a href='x'>the <b>page</b></a>!"]),
        ("<ul><li><a href=x><img src=y> one</a><li>two<br>three</ul>", ["one", "two<br>three"]),
        ("<title>a <b> c</title><h1 title='t'>h</h1>", ["a <b> c", "t", "h"]),
        ("<p>a<!-- no -->b <code>x y</code> c</p>", ["a<m1/>b <m4/> c"]),
        ("<table><tr><th>a<td>b</table>", ["a", "b"]),
        ("<script>a</script><style>b</style><pre>c</pre><textarea>d</textarea><template><p>e</template>", []),
        ("<div translate=no><div>a</div>b</div><p class='x notranslate'>c</p><p>d</p>", ["d"]),
        ("<p translate=no>a<p>b", ["b"]),
        ("<p>a <span translate='no'>b <i>c</i></span> d</p>", ["a <m2/> d"]),
        ("<img alt='a'><input placeholder=b><a aria-label='c'></a><img alt=''>", ["a", "b", "c"]),
        ("<meta name=description content='a'><meta name=author content='b'>", ["a"]),
        ("<p>a <img alt='b &lt; c'> d</p>", ["a <img alt='b &lt; c'> d", "b < c"]),
        ("<select><option>a<option>b</select><button>c</button><label>d <input></label>", ["a", "b", "c", "d"]),
        ("<p>1 | 2 &nbsp; &copy;</p>", []),
        ("<p>a &lt;b&gt; &eacute;&#233;&nbsp;c & d &#; e &#x; <3</p>", ["a <b> éé\xa0c & d &#; e &#x; <3"]),
    ],
)
def test_texts_of_blocks_and_attributes_are_units(tmp_path, content, texts):
    document = read(tmp_path, content)
    assert [text for unit in document.units for text in unit.texts] == texts
    assert translated(document, str) == content


def test_only_text_changes(tmp_path):
    content = (
        "<!DOCTYPE html>\r\n<html lang=en><head><title>a</title><script>if (a < b) {}</script></head>\r\n<body>\r\n"
        "<p class=x>  one &mdash; <b title='t'>two</b>&nbsp;<img alt=three src=a.png>four\r\n</p><!-- c -->\r\n</html>"
    )
    result = translated(read(tmp_path, content), lambda text: "t & <" if text in "t three" else text.replace("o", "0"))
    assert result == (
        content.replace("one &mdash;", "0ne —")
        .replace("two", "tw0")
        .replace("four", "f0ur")
        .replace("'t'", "'t &amp; &lt;'")
        .replace("alt=three", 'alt="t &amp; &lt;"')
    )


def test_xhtml_has_no_named_space(tmp_path):
    assert "A&#160;B" in translated(read(tmp_path, "<p>a&#160;b</p>", "a.xhtml"))


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [("cp1252", "iso-8859-1"), ("koi8-r", "koi8-r"), ("shift_jis", "shift_jis"), ("utf-8-sig", "x"), ("utf-16", "x")],
)
def test_a_page_keeps_its_encoding_and_characters_it_lacks_become_numbers(tmp_path, encoding, declared):
    content = f'<meta http-equiv="Content-Type" content="text/html; charset={declared}">\n<p>a</p>'
    document = read(tmp_path, content, encoding=encoding)
    assert document.replaced({}) == content.encode(encoding)
    result = translated(document, lambda text: "Ω я \u1234")
    assert Tree(result).nodes[-2] == " Ω я \u1234"


TEXT = st.text(st.sampled_from("ab <>&\"'é;#x/!-\n=\xa0p"), max_size=12)
TAGS = (
    "<b> </b> <i> </i> <p> </p> <br> <br/> <img\nalt='b'> <!--c--> <code> </code> <li> <title> </title> <div> </div> "
    "&lt; &b <![if> <![CDATA[ ]]>"
)
MARKUP = st.lists(
    st.one_of(TEXT, st.sampled_from(TAGS.split(" ")), st.sampled_from(["<a title=a>", "</a>"])), max_size=12
)


@given(MARKUP.map("".join))
def test_any_page_stays_the_same_but_for_its_text(tmp_path_factory, content):
    try:
        document = read(tmp_path_factory.mktemp("html"), content)
    except DocumentError:
        return
    assert translated(document, str) == content
    ends = [0, *(place for unit in document.units for place in (unit.start, unit.end)), len(content)]
    assert ends == sorted(ends)


@given(st.lists(TEXT, max_size=3), TEXT)
def test_any_translation_is_read_again_as_text(tmp_path_factory, texts, translation):
    tmp_path = tmp_path_factory.mktemp("html")
    content = "".join(f"<p>word<i>{text.translate({60: '&lt;', 38: '&amp;'})}</i></p>" for text in texts)
    result = translated(read(tmp_path, content), lambda text: f"w{translation}" if text == "a" else text + translation)
    assert [node for node in Tree(result).nodes if node[0] != " "] == [
        node for node in Tree(content).nodes if node[0] != " "
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<p>a</p>\n<!-- b", "line 2: this comment has no end; is it cut off?"),
        ("<p>a</p>\n\n<a href='b", "line 3: this tag has no end; is it cut off?"),
        ("<!--" * 100_000, "line 1: this comment has no end"),
        ("<a " * 100_000, "line 1: this tag has no end"),
        ("<p>\né".encode("latin-1"), "line 2: not utf-8"),
        ("<meta charset=foo>", "its encoding 'foo' is unknown"),
    ],
)
def test_damage_is_one_error_with_its_place(tmp_path, content, problem):
    with pytest.raises(DocumentError, match=rf"^{tmp_path}/a\.html(, |: ){problem}"):
        read(tmp_path, content)


@pytest.mark.parametrize("part", ["<p>", "<b>", "<![", "<!", "</", "<?x", "<a b='", "<i translate=no>", "&#", "<!-->"])
def test_hostile_pages_take_no_long_time(tmp_path, part):
    read(tmp_path, part * 20_000 + "a'\"-->" + "</b>" * 20_000)
