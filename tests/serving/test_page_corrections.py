"""Corrections on the page of `mt serve`, tried in Chromium as a person would; skipped where it is not installed."""

import pytest
from chromium import Page, violations
from fake_model import known_models
from full_disk import room_for
from serving_server import running

from mt_cli.corpus.corrections import Correction, append_corrections, current_corrections
from mt_cli.serving.access import Keys
from mt_cli.serving.service import Service

pytestmark = pytest.mark.slow

FIELDS = "document.querySelectorAll('#corrections textarea')"
BUTTONS = "[...document.querySelectorAll('#corrections li')].map(row => [...row.querySelectorAll('button')]"
STATES = f"{BUTTONS}.map(button => button.hidden ? 'hidden' : button.disabled ? 'disabled' : 'enabled'))"
STATUS = "document.querySelector('#corrections span').textContent"
UNCHANGED, CHANGED, SAVED = ["disabled", "hidden"], ["enabled", "hidden"], ["disabled", "enabled"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corrections.jsonl"


@pytest.fixture
def server(path):
    path.touch()
    with running(Service(known_models(), corrections=path)) as server:
        yield server


def visit(page, server, text="A dog runs. The children sleep."):
    page.open(f"{server.url}/#en-de")
    page.wait_until("document.getElementById('source-language').disabled", False)
    page.evaluate("document.getElementById('source').focus()")
    page.type(text)
    page.wait_until("document.querySelector('#result:not(.old):not(:empty)[aria-busy=false]') !== null")


def open_corrections(page):
    page.click("document.querySelector('#corrections-box summary')")
    page.wait_until(f"{FIELDS}.length > 0")


def edit(page, index, text):
    page.evaluate(f"{FIELDS}[{index}].focus(), {FIELDS}[{index}].select()")
    page.type(text)


def saved(path):
    return [(row.source, row.target, row.draft, row.model) for row in current_corrections([path])]


def test_a_sentence_is_edited_saved_and_taken_back(page, server, path):
    visit(page, server)
    open_corrections(page)
    assert page.evaluate(f"[...{FIELDS}].map(field => [field.value, field.lang])") == [
        ["Ein Hund läuft.", "de"],
        ["Die Kinder schlafen.", "de"],
    ]
    edit(page, 0, "Der Hund\nrennt. ")
    page.wait_until(STATES, [CHANGED, UNCHANGED])
    page.click("document.querySelector('#corrections button')")
    page.wait_until(STATUS, "Saved")
    page.wait_until("document.getElementById('result').innerText", "Der Hund rennt. Die Kinder schlafen.")
    assert page.evaluate(STATES) == [SAVED, UNCHANGED] and page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    assert saved(path) == [("A dog runs.", "Der Hund rennt.", "Ein Hund läuft.", "captions")]
    edit(page, 0, " ")
    page.wait_until(STATES, [["disabled", "enabled"], UNCHANGED])
    page.click("document.querySelectorAll('#corrections button')[1]")
    page.wait_until(STATUS, "Correction taken back")
    assert page.evaluate(STATES) == [UNCHANGED, UNCHANGED]
    assert saved(path) == [] and page.evaluate(f"{FIELDS}[0].value") == "Ein Hund läuft."
    page.wait_until("document.getElementById('result').innerText", "Ein Hund läuft. Die Kinder schlafen.")


def test_the_keyboard_saves_and_takes_back(page, server, path):
    visit(page, server)
    open_corrections(page)
    page.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Translation of sentence 1"
    edit(page, 0, "Ein Hund rennt.")
    page.press("Escape")
    page.wait_until(STATES, [UNCHANGED, UNCHANGED])
    assert page.evaluate(f"{FIELDS}[0].value") == "Ein Hund läuft."
    edit(page, 1, "Die Kinder ruhen.")
    page.press("Enter", has_control=True)
    page.wait_until(STATES, [UNCHANGED, SAVED])
    assert [row[1] for row in saved(path)] == ["Die Kinder ruhen."] and page.text("#status") == "Saved"
    page.evaluate("document.getElementById('source').focus()")
    page.type(" A dog runs.")  # A text that is translated again keeps what was saved, and edits.
    edit(page, 0, "Ein Hund rennt.")
    page.wait_until(f"{FIELDS}.length", 3)
    page.wait_until(STATES, [CHANGED, SAVED, CHANGED])


def test_two_people_correct_at_once(page, browser, server, path):
    second = Page(browser)
    for tab in (page, second):
        browser.on_event = tab._on_event
        visit(tab, server)
        open_corrections(tab)
        edit(tab, 0, "Ein Hund rennt." if tab is page else "Ein Hund geht.")
    for tab in (page, second):
        browser.on_event = tab._on_event
        tab.press("Enter", has_control=True)
        tab.wait_until(STATUS, "Saved")
    assert [row[1] for row in saved(path)] == ["Ein Hund geht."] and path.read_bytes().count(b"\n") == 2
    second.close()


def test_an_edit_outlives_a_full_disk_and_a_missing_key(page, path, tmp_path):
    (tmp_path / "keys.txt").write_text("a-key-of-people-1234", encoding="utf-8")
    append_corrections(path, [Correction.of("long " * 2_000, "lang", "", ("en", "de"), "")])  # More than the log has.
    with running(Service(known_models(), keys=Keys.read(tmp_path / "keys.txt"), corrections=path)) as server:
        page.open(server.url)
        page.wait_until("document.getElementById('key-form').hidden", False)
        page.evaluate("document.getElementById('key').focus()")
        page.type("a-key-of-people-1234")
        page.press("Enter")
        visit(page, server)
        open_corrections(page)
        edit(page, 0, "Ein Hund rennt.")
        with room_for(path, 20):
            page.press("Enter", has_control=True)
            page.wait_until(f"{STATUS}.includes('cannot be stored')")
        assert len(saved(path)) == 1 and page.evaluate(STATES) == [CHANGED, UNCHANGED]
        page.wait_until(f"document.activeElement === {FIELDS}[0] && !{FIELDS}[0].readOnly")
        page.intercept("v1/corrections", lambda request: (403, {"error": "the key is not valid"}, {}))
        page.press("Enter", has_control=True)
        page.wait_until(f"{STATUS}.includes('not valid')")
        page.wait_until("document.getElementById('key-form').hidden", False)
        page.answers.clear()
        page.click("document.querySelector('#corrections button')")
        page.wait_until(STATUS, "Saved")
        assert [row[1] for row in saved(path)][1:] == ["Ein Hund rennt."]


def test_a_server_without_a_file_offers_no_corrections(page):
    with running(Service(known_models())) as server:
        visit(page, server)
        assert page.evaluate("document.getElementById('corrections-box').hidden")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (320, "dark")])
def test_corrections_are_no_barrier(page, server, axe, width, scheme):
    page.resize(width)
    page.emulate(prefers_color_scheme=scheme)
    visit(page, server, "A dog runs. " + "Verylongword" * 9)
    open_corrections(page)
    edit(page, 0, "Ein Hund rennt.")
    page.press("Enter", has_control=True)
    page.wait_until(STATUS, "Saved")
    page.intercept("v1/corrections", lambda request: (507, {"error": "it cannot be stored"}, {}))
    edit(page, 1, "longerword" * 12)
    page.press("Enter", has_control=True)
    page.wait_until("document.querySelectorAll('#corrections .error').length", 1)
    assert violations(page, axe) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
