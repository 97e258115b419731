import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_trips import read, texts_of, translated

from mt_cli.features.documents.document import DocumentError

RST = """:orphan:

.. _target:
.. |sub| replace:: stays

==============
 A first title
==============

A paragraph that was wrapped
at a width, with ``literal``
and :ref:`a title <target>`. As here::

    literal block

- An item
  continued

  #. nested

* | verse one
  | verse two

term : classifier
    A definition
    of it.

----

.. note:: A note that begins
   on the first line.

   And goes on::

      literal

.. warning::
   :class: x

   A warning.

.. versionchanged:: 3.2
   Something changed.

.. deprecated:: 3.1 Use others.

.. admonition:: A heading
   :class: y

   Text of it.

.. code-block:: python

   code = 1

.. function:: name(argument)
              other(argument)
   :module: m

   What it does.

   :param argument: an argument
   :type argument: int

.. [1] A footnote
   on two lines.

.. a comment
   that stays

>>> doctest
1

+-----+
| box |
+-----+

=====  =====
a      b
=====  =====
c      d
=====  =====

-v, --verbose  an option

Quoted::

> literal

Second title
~~~~~~~~~~~~
1. One
2. Two
"""
TEXTS = [
    "A first title",
    "A paragraph that was wrapped at a width, with ``literal`` and :ref:`a title <target>`. As here",
    "An item continued",
    "nested",
    "verse one",
    "verse two",
    "term",
    "A definition of it.",
    "A note that begins on the first line.",
    "And goes on",
    "A warning.",
    "Something changed.",
    "Use others.",
    "A heading",
    "Text of it.",
    "What it does.",
    "an argument",
    "A footnote on two lines.",
    "Quoted",
    "Second title",
    "One",
    "Two",
]


def test_text_of_blocks_without_literals_comments_and_targets(tmp_path):
    document = read(tmp_path, ".rst", RST)
    assert texts_of(document) == [(text,) for text in TEXTS]
    assert all(unit.is_block for unit in document.units)
    assert document.counts["tables"] == 2


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_identity_keeps_each_byte(tmp_path, line_end, mark):
    raw = mark + RST.replace("\n", line_end).encode()
    document = read(tmp_path, ".rst", raw)
    assert translated(document) == raw and len(document.units) == len(TEXTS)


def test_translations_are_read_again_as_the_same_units(tmp_path):
    def longer(text):
        return re.sub(r"(?<=[a-z] )([a-z]+)(?= [a-z])", r"\1 1. - .. -- :x: \1", text)

    document = read(tmp_path, ".rst", RST)
    written = translated(document, longer)
    assert texts_of(read(tmp_path, ".rst", written)) == [(longer(text),) for text in TEXTS]
    changed = {line for line in RST.splitlines() if line not in written.decode().splitlines()}
    assert not any(
        word in line for line in changed for word in ("literal block", "code =", "_target", "comment", "box")
    )


def test_lines_of_titles_get_the_new_width(tmp_path):
    content = "=====\n Abc\n=====\n\nAbc\n---\n\nAbc\n~~~~~~~~~~\n"
    written = translated(read(tmp_path, ".rst", content), lambda text: "漢字かな").decode()
    assert written == ("==========\n 漢字かな\n==========\n\n漢字かな\n--------\n\n漢字かな\n~~~~~~~~~~\n")


def test_wrapped_paragraphs_are_wrapped_at_their_width_with_their_prefix(tmp_path):
    content = "* some words in\r\n  two lines here\r\n\r\n.. note:: Some words\r\n   are here\r\n\r\nNot wrapped\r\n"
    written = translated(read(tmp_path, ".rst", content), lambda text: text.replace(" ", " und "))
    assert written.decode() == (
        "* some und words\r\n  und in und two\r\n  und lines und\r\n  here\r\n\r\n"
        ".. note:: Some und\r\n   words und are und\r\n   here\r\n\r\nNot und wrapped\r\n"
    )


@pytest.mark.parametrize("text", ["- x", "1. x", ".. x", ":x: y", "a) x", "| x", "-v x", ">>> x", "----", "__ x"])
def test_translations_never_begin_another_block(tmp_path, text):
    for content in ("text\n", "some text\nin lines\n", "- text\n", ".. note:: text\n", "text\n====\n"):
        document = read(tmp_path, ".rst", content)
        written = translated(document, lambda source: text)
        again = texts_of(read(tmp_path, ".rst", written))
        assert again in ([(f"\\{text}",)], []) and (again or text in ("----",))


def test_a_paragraph_that_begins_with_an_initial_is_no_list(tmp_path):
    assert texts_of(read(tmp_path, ".rst", "A. Einstein was\na physicist\n")) == [("A. Einstein was a physicist",)]
    assert texts_of(read(tmp_path, ".rst", "A. Einstein\nB. Bohr\n")) == [("Einstein",), ("Bohr",)]


def test_references_by_their_text_keep_their_targets(tmp_path):
    content = "See `the  guide`_, `Python`_ and ```the guide`_``.\n\n.. _the guide: a.html\n.. _python: b.html\n"
    document = read(tmp_path, ".rst", content)
    text = "See `the guide <the guide_>`__, `Python <Python_>`__ and ```the guide`_``."
    assert texts_of(document) == [(text,)] and translated(document) == content.encode()
    written = translated(document, lambda text: text.replace("See `the guide", "Siehe `den Leitfaden")).decode()
    assert written.startswith("Siehe `den Leitfaden <the guide_>`__, `Python`_ and ```the guide`_``.\n")


rst = st.text(st.sampled_from("ab é漢😀\n\n\t  .:-*+#=`~|[]_\\1"), max_size=60) | st.text(max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
@given(rst)
def test_any_text_comes_back_whole(tmp_path, content):
    document = read(tmp_path, ".rst", content)
    assert translated(document) == content.encode()
    assert all("\n" not in text for texts in texts_of(document) for text in texts)
    translated(document, str.upper)


@pytest.mark.parametrize(
    "content",
    [
        "word " * 200_000,
        "word\n" * 50_000,
        "- " * 20_000 + "a",
        "\n".join(" " * depth + "- a\n" for depth in range(0, 2_000, 2)),
        ".. note::\n\n" + "".join("   " * depth + ".. note::\n\n" for depth in range(1, 500)),
        "`" * 50_000 + "a",
        "a\n=\n\n" * 20_000,
        ":a" * 50_000,
        "=== " * 50_000 + "\n" + "a\n" * 50_000,
        "a\n  b\n" * 20_000,
        ("a::\n\n  b\n\n") * 20_000,
    ],
)
def test_large_and_nested_files_are_read_in_linear_time(tmp_path, content):
    document = read(tmp_path, ".rst", content)
    assert translated(document) == content.encode()


def test_other_encodings_are_refused(tmp_path):
    with pytest.raises(DocumentError, match="line 2: not utf-8"):
        read(tmp_path, ".rst", b"a\n\xe4\n")
