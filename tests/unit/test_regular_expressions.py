"""Regular expressions take time in proportion to the text, whatever a stranger writes."""

import ast
import dataclasses
import importlib
import pkgutil
import random
import re
import sys
from pathlib import Path
from time import process_time

import pytest
import regex
from linear import assert_linear

import mt_cli

SIZE, NUM_PUMPS = 20_000, 12
ALWAYS = ["a", "A", "1", " ", "\n", "."]
FROM_START = {"match", "fullmatch"}
CHECKED_TEXTS = {"_STRING": "a line or file that was parsed before: each string ends", "_SECTION": "parsed XML"}


def patterns_in(value, depth=4):
    if isinstance(value, re.Pattern | regex.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | set | frozenset | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(item, depth - 1)


def uses_in(module):
    """Patterns of a module, in attributes and in calls such as `re.sub("a", ...)`, each with its methods in use."""
    content = Path(module.__file__).read_text(encoding="utf-8")
    attributes = dict(vars(module))
    for value in vars(module).values():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            attributes |= {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
            content += Path(sys.modules[type(value).__module__].__file__).read_text(encoding="utf-8")
    for name, value in attributes.items():
        if name not in CHECKED_TEXTS:
            methods = set(re.findall(rf"\b{name}\.(\w+)\(", content))
            yield from ((pattern, methods) for pattern in patterns_in(value))
    for node in ast.walk(ast.parse(content)):
        match node:
            case ast.Call(func=ast.Attribute(ast.Name("re"), method), args=[ast.Constant(text), *_]):
                if method != "compile":
                    yield re.compile(text), {method}


def all_uses():
    uses = {}
    for info in pkgutil.walk_packages(mt_cli.__path__, "mt_cli."):
        if not info.name.endswith("__main__"):
            try:
                module = importlib.import_module(info.name)
            except ImportError:
                continue  # Needs a package that is not installed.
            for pattern, methods in uses_in(module):
                uses.setdefault((pattern.pattern, pattern.flags), (pattern, set()))[1].update(methods)
    return uses.values()


def pumps_for(pattern, number):
    """Parts to repeat, with what goes before and after them: characters and words of the pattern, and usual ones."""
    chosen = random.Random(0)
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    words = re.findall(r"\w{2,}", re.sub(r"\\.|\(\?P?<?\w*>?", "", text))
    parts = [*ALWAYS, *chosen.sample(sorted(set(text)), min(12, len(set(text)))), *words[:4]]
    yield from (("", part, after) for part in dict.fromkeys(parts) for after in ("", "\0"))
    for _ in range(number):
        before, part = ("".join(chosen.choices(parts, k=size)) for size in (chosen.randrange(3), chosen.randint(2, 4)))
        yield before, part, chosen.choice(["", "\0", *parts])


@pytest.mark.parametrize("number", [NUM_PUMPS, pytest.param(40 * NUM_PUMPS, marks=pytest.mark.slow)])
def test_every_regular_expression_is_linear(number):
    """Work on a text that may take long is compared with work on an eighth of it."""
    num_patterns, quadratic = 0, {}
    for pattern, methods in all_uses():
        num_patterns += 1
        works = [pattern.match, pattern.fullmatch]
        if not methods or methods - FROM_START:
            works = [lambda text, pattern=pattern: [*pattern.finditer(text)], *works[: 2 * bool(methods & FROM_START)]]
        for before, part, after in pumps_for(pattern, number):

            def content(size, before=before, part=part, after=after, pattern=pattern):
                text = before + part * (size // len(part)) + after
                return text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text

            for work in works:
                text, started_at = content(SIZE // 8), process_time()
                work(text)
                if process_time() - started_at > 0.003:
                    try:
                        assert_linear(work, content, SIZE // 8)
                    except AssertionError:
                        quadratic[str(pattern.pattern)] = before, part, after
                        break
    assert not quadratic
    assert num_patterns > 100
