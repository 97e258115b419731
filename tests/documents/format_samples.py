"""A document of each format: each `word` of it is translated, and nothing that is `kept` is.

What stands in « » is added by a translation, in which `word` is `wort`.
"""

import re
from dataclasses import dataclass

from round_trips import archive


@dataclass(frozen=True)
class Sample:
    """A document of a format."""

    suffix: str
    text: str
    column: str | None = None
    part: str | None = None
    """File of the archive that has the text."""

    @property
    def content(self) -> str:
        return re.sub("«.*?»", "", self.text, flags=re.DOTALL)

    @property
    def expected(self) -> str:
        """Content of the translated document."""
        return re.sub("[«»]", "", self.text) if "«" in self.text else re.sub("word(?!p)", "wort", self.text)

    def packed(self, content: str | bytes) -> str | bytes:
        return archive(self.part, content) if self.part else content


CATALOGUE = r"""# kept
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);\n"

#. kept
#: a.c:1
#, c-format«, fuzzy»
msgctxt "kept"
msgid "%s word"
msgstr "«%s wort»"

«#, fuzzy
»#| msgid "kept"
msgid "word" " \"word\""
msgstr "«wort \"wort\"»"

msgid "kept"
msgstr "kept"

«#, fuzzy
»msgid "%d word"
msgid_plural "%d words"
msgstr[0] "«%d wort»"
msgstr[1] "kept"
msgstr[2] "«%d worts»"

«#, fuzzy
»msgid ""
"word\n"
"word"
msgstr ""«
"wort\n"
"wort"»

#~ msgid "kept too"
#~ msgstr ""
"""
XLIFF_1 = """<?xml version="1.0"?>
<xliff version="1.2"><file source-language="en-US" target-language="it"><body>
  <trans-unit id="1">
    <source>word &amp; <x id='1'/>word</source>«
    <target state="needs-review-translation" state-qualifier="mt-suggestion">wort &amp; <x id='1'/>wort</target>»
    <note>kept</note>
  </trans-unit>
  <trans-unit id="2">
    <source>word <bpt id="1">kept</bpt>word<ept id="1">kept</ept> <mrk mtype="protected">kept</mrk> word</source>«
    <target state="needs-review-translation" state-qualifier="mt-suggestion">wort <bpt id="1">kept</bpt>wort\
<ept id="1">kept</ept> <mrk mtype="protected">kept</mrk> wort</target>»
  </trans-unit>
  <group translate="no"><trans-unit id="3"><source>kept</source></trans-unit></group>
  <trans-unit id="4" approved="yes"><source>kept</source></trans-unit>
  <trans-unit id="5"><source>kept</source><target state="final"></target></trans-unit>
  <trans-unit id="6"><source>kept</source><target xml:lang="it" state="translated">kept</target></trans-unit>
  <trans-unit id="7"><source><x id='1'/> </source></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="it"><file id="f">
<unit id="1"><segment id="s"« state="translated"»>
\t<source>word <pc id="1">word</pc> word</source>«
\t<target>wort <pc id="1">wort</pc> wort</target>»
</segment></unit>
<group id="g" translate="no"><unit id="2"><segment><source>kept</source></segment></unit></group>
<unit id="3"><segment state="final"><source>kept</source></segment></unit>
</file></xliff>
"""
HTML = """<!DOCTYPE html>
<html lang=it><head><title>word &amp; word</title><meta name=description content="word">
<script>if (kept < 1) {}</script><style>kept</style></head><body class=kept>
<p class=kept>  word &lt; <b title='word'>word</b>&nbsp;<img alt="word" src=a.png>word
</p><!-- kept --><![CDATA[kept]]>
<ul><li><a href=kept>word</a><li>word<br>word <code>kept</code> word</ul><table><tr><th>word<td>word</table>
<pre>kept</pre><textarea>kept</textarea><template><p>kept</template><meta name=author content="kept">
<div translate=no>kept <div>kept</div>kept</div><p class="x notranslate">kept</p>
<select><option>word<option>word</select><input placeholder="word" value=kept><a aria-label="word"></a>
</body></html>
"""
MARKDOWN = """---
slug: kept
---
# A *word* with `code` {#kept}

word
====

word word word word word
word **word** [word](#x)
word.  
word after a break\\
word

    kept

> word word
> word

- word
  word
  1. word

     ```python
     kept
     ```
- [ ] word

<div>
word
</div>

[full word][ref] and `code`.

[ref]: http://example.org/kept "kept"

| word | `code` |
|------|:----:|
| word \\| word | word |
| 12 | |

[^1]: word word

::: kept
word
:::

> [!NOTE]
> word

{% include "kept" %}

![](kept.png)
"""
SRT = """1
00:00:01,000 --> 00:00:02,500
word word
word word word

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600
{\\an8}<i>word</i>

3
00:00:05,000 --> 00:00:06,000
- word word
word word?
- word.

4
00:00:07,000 --> 00:00:08,000
♪
"""
VTT = """WEBVTT - kept

STYLE
::cue { color: kept }

NOTE kept
kept

REGION
id:kept

kept
00:01.000 --> 00:02.000 align:start line:0
<v Roger Bingham>word in <c.loud>word</c> &amp; &lt;word&gt;

00:03.000 --> 00:04.000
word
"""
CSV = 'kept,text,note\n1,word,kept\n2,"word ""word"", word","kept, kept"\n\n3,"word\nword",\n4,,kept\n5, 12 ,"y"'
TSV = 'kept\ttext\n1\tword "word"\n2\t"word\n\n3\t  \n'
SPREADSHEET = 'kept\ttext\n"kept ""kept"""\t"word ""word"""\n2\tword\n'
JSON = """{
  "kept" : "word \\"word\\"",
\t"kept 2": {"kept": ["word ", "", 1, null, "100 %", "/ word"], "kept 3": "word\\nword"},
  "kept": "word"   }
"""
PROPERTIES = """# kept = kept \\
! kept
  kept = word
kept: word
kept word
kept\\ \\=kept=word
kept = word #word word
escaped=Caf\\u00E9\\n\\tword
empty=
number=12
"""
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)
RUN = '<w:r>{}<w:t xml:space="preserve">{}</w:t></w:r>'
BOLD = RUN.format("<w:rPr><w:b/></w:rPr>", "{}")
DOCX = (
    f'<?xml version="1.0"?>\n<w:document xmlns:w="{WORD}"><w:body>\n'
    f"<w:p><w:pPr><w:jc/></w:pPr>{RUN.format('', 'word &lt; ')}{BOLD.format('word')}{RUN.format('', ' word')}</w:p>\n"
    f"<w:p><w:r><w:instrText>kept</w:instrText></w:r>{RUN.format('', 'word')}<w:r><w:br/></w:r>"
    f'<w:hyperlink w:id="kept">{BOLD.format("word")}</w:hyperlink>{RUN.format("", "word")}</w:p></w:body></w:document>'
)
ODT = (
    f"<office:document-content {OFFICE}><office:body>\n<text:h>word</text:h><text:p>word <text:span>word</text:span>"
    "<text:note><text:note-body><text:p>word</text:p></text:note-body></text:note> word<text:s/></text:p>\n"
    "</office:body></office:document-content>"
)

SAMPLES = {
    "gettext": Sample(".po", CATALOGUE),
    "xliff 1": Sample(".xlf", XLIFF_1),
    "xliff 2": Sample(".xliff", XLIFF_2),
    "html": Sample(".html", HTML),
    "xhtml": Sample(".xhtml", "<p>word&#160;word</p>\n"),
    "markdown": Sample(".md", MARKDOWN),
    "subrip": Sample(".srt", SRT),
    "webvtt": Sample(".vtt", VTT),
    "csv": Sample(".csv", CSV, "text"),
    "tsv": Sample(".tsv", TSV, "text"),
    "tsv of a spreadsheet": Sample(".tsv", SPREADSHEET, "text"),
    "json": Sample(".json", JSON),
    "properties": Sample(".properties", PROPERTIES),
    "docx": Sample(".docx", DOCX, part="word/document.xml"),
    "odt": Sample(".odt", ODT, part="content.xml"),
}
