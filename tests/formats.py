"""Files of parallel text, read and compressed, for the tests of their formats."""

import bz2
import gzip
import lzma
import re

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from mt_cli.corpus.formats.table import read_file
from mt_cli.corpus.rows import ReadReport
from mt_cli.errors import CorpusError

LANGUAGES = ("en", "it")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ENDINGS = st.sampled_from(["", ".gz", ".zst", ".bz2", ".xz"])

each_time_a_folder = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def read(path, languages=LANGUAGES, columns=None, format_name=None):
    """Pairs of a file."""
    return [row[1:] for row in numbered(path, languages, columns, format_name=format_name)[0]]


def numbered(path, languages=LANGUAGES, columns=None, format_name=None):
    """Rows of a file, and the report on what the reader chose and dropped."""
    report = ReadReport()
    return list(read_file(path, languages, columns, format_name, report)), report


def assert_refused(path, content, place):
    """Write bytes, unless they are None, and check that their error begins with the path and a place."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=f"^{re.escape(str(path))}{place}"):
        read(path)


def packed(path, content, ending):
    """Write bytes, compressed by the ending; return the path."""
    path = path.with_name(path.name + ending)
    if ending == ".gz":
        content = gzip.compress(content)
    elif ending == ".zst":
        content = pa.compress(content, "zstd", asbytes=True)
    elif ending:
        content = {".bz2": bz2, ".xz": lzma}[ending].compress(content)
    path.write_bytes(content)
    return path
