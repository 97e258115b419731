"""Laws of the page of `mt serve`, tried in Chromium as a person would; skipped where it is not installed."""

import json
import os
import urllib.request
from pathlib import Path

import pytest
from chromium import violations
from PIL import Image

pytestmark = pytest.mark.slow

TEXT = "A dog runs. The children sleep."
TRANSLATION = "Ein Hund läuft. Die Kinder schlafen."
TRANSLATED = "document.querySelector('#result:not(.old):not(:empty)[aria-busy=false]') !== null"
LIT = "[...document.querySelectorAll('.lit')].map(word => word.textContent)"
ITEMS = "[...document.querySelectorAll('[role=menuitemradio]')].map(item => item.textContent)"
FOCUS = "document.activeElement.textContent"
MESSAGE = "document.getElementById('message-text').textContent"
BUSY = (429, {"error": "Too many requests."}, {"Retry-After": "1"})


@pytest.fixture(scope="module")
def url():
    """Address of a server whose models know a few sentences."""
    from fake_model import known_models
    from serving_server import running

    from mt_cli.serving.service import Service

    with running(Service(known_models())) as server:
        yield f"{server.url}/"


@pytest.fixture
def visit(page, url):
    """Opens the page with a fragment, types a text, and waits for its translation."""

    def visit(fragment="#en-de", text=""):
        page.open(url + fragment)
        page.wait_until("document.getElementById('source-language').disabled", False)
        if text:
            enter(page, text)
            page.wait_until(TRANSLATED)

    return visit


def enter(page, text):
    page.evaluate("document.getElementById('source').focus()")
    page.type(text)


def replace(page, text):
    page.evaluate("source.focus(), source.select()")
    page.type(text)


def word(side, text):
    """Expression for the element of a word; `side` is "mirror" (the source) or "result"."""
    return f"[...document.querySelectorAll('#{side} .word')].find(word => word.textContent === {json.dumps(text)})"


def choose(page, select, value):
    change = "dispatchEvent(new Event('change'))"
    page.evaluate(f"(select => {{ select.value = '{value}'; select.{change} }})(document.getElementById('{select}'))")


def open_menu(page):
    page.evaluate("document.querySelector('.sentence').focus()")
    page.press("Enter")
    page.wait_until("document.querySelectorAll('[role=menuitemradio]').length > 1")


def open_files(page):
    page.click("document.getElementById('files-tab')")


def wait_for_link(page, name):
    page.wait_until("document.querySelector('#files a')?.download", name)


def save(page, folder, name):
    """Content of a translated file, which is saved as a person would."""
    page.download_to(folder)
    page.click("document.querySelector('#files a')")
    return page.file(folder / name).read_bytes().decode()


def test_a_pause_asks_and_only_the_newest_answer_shows(page, visit):
    visit()
    stale = page.evaluate("fetch('v1/translate', {method: 'POST', body: '{\"text\": \"STALE\"}'}).then(r => r.json())")
    asked = []
    page.intercept("v1/translate", lambda request: asked.append(json.loads(request["postData"])["text"]))
    page.evaluate("source.focus()")
    page.call("Input.imeSetComposition", text="A do", selectionStart=4, selectionEnd=4)
    page.evaluate("new Promise(resolve => setTimeout(resolve, 600))")
    assert asked == []  # An input method has not ended its composition.
    page.type("A dog runs.")
    page.wait_for_text("#result", "Ein Hund läuft.")
    assert asked == ["A dog runs."]
    page.intercept("v1/translate", lambda request: "hold" if TEXT not in request["postData"] else None)
    enter(page, " No.")
    page.wait_until("document.querySelector('#result').className", "text old")
    page.wait_for(lambda: page.held, "a request")
    assert page.text("#result") == "Ein Hund läuft."
    replace(page, TEXT)
    page.wait_for_text("#result", TRANSLATION)
    for number in page.held:
        page.fulfill(number, 200, stale)
    for _ in range(10):
        page.browser.pump()
        assert page.text("#result") == TRANSLATION


def test_words_that_belong_together_light_up(page, visit):
    visit(text=TEXT)
    page.hover(word("mirror", "dog"))
    page.wait_until(LIT, ["dog", "Hund"])
    page.hover(word("result", "Kinder"))
    page.wait_until(LIT, ["children", "Kinder"])
    assert page.text("#info") == "children → Kinder · 90 % sure"
    page.hover("document.querySelector('h1')")
    page.wait_until(LIT, [])
    page.press("Home")
    page.wait_until(LIT, ["A", "Ein"])  # The word at the caret.
    page.evaluate("document.querySelectorAll('.sentence')[0].focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.press(key)
    page.wait_until(LIT, ["children", "Kinder"])
    assert page.text("#status") == "Kinder: children, 90 percent sure"


@pytest.mark.parametrize(("fragment", "width"), [("#en-de", 1200), ("#ar-en", 320)])
def test_aligned_words_lie_exactly_below_the_text(page, visit, fragment, width):
    page.resize(width)
    visit(fragment)
    for text in ("\tA dog  runs.   \n\nThe children sleep." * 9, "longword" * 99, "كلب يجري. abc 123. " * 30):
        replace(page, text)
        page.wait_until(TRANSLATED)
        page.evaluate("source.style.height = '0', mirror.style.alignSelf = 'start'")
        text_height, mirror_height = page.evaluate("[source.scrollHeight, mirror.offsetHeight]")
        assert abs(text_height - mirror_height) <= 1  # Rounding.
        page.evaluate("source.style.height = mirror.style.alignSelf = ''")
        assert page.evaluate("source.scrollHeight <= source.clientHeight")


def test_alternatives_are_chosen_by_keyboard_and_mouse_and_stay(page, visit):
    visit(text="A dog runs.")
    page.press("Tab")
    page.press("Tab")
    page.press("Enter")
    page.wait_until(ITEMS, ["Ein Hund läuft.", "Ein Hund rennt.", "Es läuft ein Hund."])
    page.press("Escape")
    page.wait_until("menu.matches(':popover-open')", False)
    assert page.evaluate(FOCUS) == "Ein Hund läuft."
    open_menu(page)
    page.press("End")
    page.press("Enter")
    page.wait_for_text("#result", "Es läuft ein Hund.")
    assert page.text("#status") == "Replaced by: Es läuft ein Hund."
    page.hover(word("result", "läuft"))
    page.wait_until(LIT, ["dog", "läuft"])
    enter(page, " The children sleep.")
    page.wait_for_text("#result", "Es läuft ein Hund. Die Kinder schlafen.")
    page.click("document.querySelectorAll('.sentence')[1]")
    page.wait_until(ITEMS, ["Die Kinder schlafen.", "Die Kinder schliefen."])
    page.click("document.querySelectorAll('[role=menuitemradio]')[1]")
    page.wait_for_text("#result", "Es läuft ein Hund. Die Kinder schliefen.")


def test_files_are_translated_and_problems_told(page, visit, tmp_path):
    visit()
    busy = [BUSY]
    page.intercept("translate_file", lambda request: busy.pop() if busy else None)
    (tmp_path / "letter.txt").write_text("A dog runs.\nThe children sleep.\n")
    page.drop(tmp_path / "letter.txt", "document.getElementById('model')")
    wait_for_link(page, "letter.de.txt")
    assert not busy and save(page, tmp_path, "letter.de.txt") == "Ein Hund läuft.\nDie Kinder schlafen.\n"
    visit()
    (tmp_path / "table.csv").write_bytes(b"id,text\r\n1,A dog runs.\r\n")
    open_files(page)
    page.choose_files("#file", tmp_path / "table.csv")
    page.wait_until("[...document.querySelectorAll('#files option')].map(option => option.text)", ["1: id", "2: text"])
    page.evaluate("document.querySelector('#files select').value = '1'")
    page.click("document.querySelector('#files button')")
    wait_for_link(page, "table.de.csv")
    assert save(page, tmp_path, "table.de.csv") == "id,text\r\n1,Ein Hund läuft.\r\n"
    for name, content in {"picture.png": b"x", "empty.txt": b"", "broken.txt": b"\xff"}.items():
        (tmp_path / name).write_bytes(content)
        page.choose_files("#file", tmp_path / name)
    page.wait_until("document.querySelectorAll('#files .error').length", 3)


def test_failed_requests_are_repeated_and_keys_asked_for(page, visit):
    visit()
    busy = [BUSY, BUSY]
    page.intercept("v1/translate", lambda request: busy.pop() if busy else None)
    enter(page, TEXT)
    page.wait_until(f"{MESSAGE}.includes('Trying again')")
    page.wait_for_text("#result", TRANSLATION)
    assert page.evaluate("document.getElementById('message').hidden")
    page.call("Network.enable")
    unlimited = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", offline=True, **unlimited)
    replace(page, "A dog runs.")
    page.wait_until(f"{MESSAGE}.includes('cannot be reached')")
    page.call("Network.emulateNetworkConditions", offline=False, **unlimited)
    page.wait_for_text("#result", "Ein Hund läuft.")
    refusal, right = (403, {"error": "The key is missing or wrong."}, {}), "Bearer secret"
    page.intercept("v1/translate", lambda r: None if r["headers"].get("Authorization") == right else refusal)
    replace(page, TEXT)
    page.wait_for_text("#key-error", "This server needs a key.")
    page.evaluate("key.focus()")
    page.type("secret")
    page.press("Enter")
    page.wait_for_text("#result", TRANSLATION)
    assert page.evaluate("[sessionStorage.getItem('key'), localStorage.length]") == ["secret", 0]
    page.intercept("v1/translate", lambda request: pytest.fail("sent"))
    replace(page, "A dog runs. " * 1700)
    page.wait_until("document.getElementById('message').innerText.includes('too long')")


def test_each_side_has_the_language_of_the_address(page, visit):
    looks = "[source, result].map(node => [node.lang, getComputedStyle(node).direction])"
    for fragment, text, translation, expected in [
        ("#ar-en", "كلب يجري.", "A dog runs.", [["ar", "rtl"], ["en", "ltr"]]),
        ("#auto-he", "A dog runs.", "כלב רץ.", [["en", "ltr"], ["he", "rtl"]]),
    ]:
        visit(fragment, text)
        assert page.text("#result") == translation and page.evaluate(looks) == expected
    visit("#auto-de", "Ein Hund läuft.")  # A target that this language cannot have is changed.
    assert page.text("#result") == "A dog runs." and page.evaluate("location.hash") == "#auto-en"
    visit("#en-de", "A dog runs.")
    page.click("document.getElementById('swap')")
    page.wait_for_text("#result", "A dog runs.")
    assert page.evaluate("[source.value, location.hash]") == ["Ein Hund läuft.", "#de-en"]
    page.evaluate("source.focus()")
    page.command("undo")
    page.wait_until("source.value", "A dog runs.")
    for fragment in ("#en-ja", "#%E0"):
        visit(fragment)
        page.wait_until(f"{MESSAGE}.includes('is not translated here')")
        assert page.evaluate("location.hash") == "#auto-de"
    choose(page, "target-language", "ar")
    enter(page, "A dog runs.")
    page.wait_for_text("#result", "كلب يجري.")


def test_the_model_and_what_to_check_are_named(page, visit):
    visit()
    assert page.text("#model-date") == "weights of 27 November 2026"
    assert " ".join(page.text("#scores").split()) == "Test set BLEU 39.2 chrF 61.0 on 1,000 sentences"
    asked = []
    page.intercept("v1/translate", lambda request: asked.append(json.loads(request["postData"]).get("model")))
    choose(page, "model-select", "subtitles")
    text = "<img src=x onerror=alert(1)> A very long dog 🐕‍🦺. Hello {name}."
    expected = "<img src=x onerror=alert(1)> A VERY LONG DOG 🐕‍🦺. HELLO {name}."
    enter(page, text)
    page.wait_until(TRANSLATED)
    assert {*asked} == {"subtitles"} and page.text("#result") == expected
    assert page.evaluate("[mirror, result].map(node => node.querySelectorAll('img').length)") == [0, 0]
    notes = page.evaluate("[...document.querySelectorAll('#notes li')].map(item => item.textContent)")
    assert any("very long dog" in note for note in notes)


def test_the_request_for_programs_is_shown_with_its_answer(page, visit):
    visit()
    assert page.evaluate("[program, legend].map(node => node.hidden)") == [True, True]
    enter(page, "A zzdog runs. A zzcat runs.")
    page.wait_until(TRANSLATED)
    notes = page.evaluate("[...document.querySelectorAll('#notes li')].map(item => item.textContent)")
    assert len(notes) == 1 and notes[0].endswith(": zzdog, zzcat")
    page.click("document.querySelector('#program summary')")
    page.wait_until("document.getElementById('program-answer').textContent !== ''")
    head, request = page.evaluate("document.getElementById('program-request').textContent").split("\n\n")
    path = head.split()[1]
    sent = urllib.request.Request(path, request.encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sent, timeout=60) as answer:
        assert json.load(answer) == json.loads(page.evaluate("document.getElementById('program-answer').textContent"))
    replace(page, "")
    page.wait_until("[program, legend].map(node => node.hidden)", [True, True])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_of_the_page_is_small(page, visit, tmp_path, scheme):
    """`PICTURES=docs` keeps the pictures for the README."""
    page.resize(600, 500, scale=2)
    page.emulate(prefers_color_scheme=scheme)
    visit("#en-de", TEXT)
    page.hover("document.querySelector('h1')")
    page.evaluate("source.setSelectionRange(3, 3)")
    page.wait_until(LIT, ["dog", "Hund"])
    path = Path(os.environ.get("PICTURES", tmp_path)) / f"page_{scheme}.png"
    path.write_bytes(page.picture())
    with Image.open(path) as picture:
        assert picture.width == 1200
        picture.convert("RGB").quantize(224, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size <= 60 * 1024


def open_program(page):
    page.click("document.querySelector('#program summary')")


def refused(page):
    page.intercept("v1/translate", lambda request: (403, {"error": "The key is missing."}, {}))
    enter(page, " More.")
    page.wait_for_text("#key-error", "This server needs a key.")


def busy(page):
    page.intercept("v1/translate", lambda request: (*BUSY[:2], {"Retry-After": "60"}))
    enter(page, " More.")
    page.wait_until("document.getElementById('message').hidden", False)
    animations = "document.getAnimations().filter(a => a.effect.target.id === 'result').map(a => a.finished)"
    page.evaluate(f"Promise.all({animations})")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (320, "dark")])
def test_no_state_of_the_page_is_a_barrier(page, visit, axe, width, scheme):
    page.resize(width)
    page.emulate(prefers_color_scheme=scheme)
    acts = {
        "#en-de": (lambda page: None, open_program, open_menu, open_files, refused),
        "#en-ar": (lambda page: None, busy),
    }
    for fragment, act in [(fragment, act) for fragment, of_fragment in acts.items() for act in of_fragment]:
        page.answers.clear()
        visit(fragment, TEXT + " Somebody came. {name} " + "verylongword" * 9)
        act(page)
        assert violations(page, axe) == [], act
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_terms_are_used_kept_and_named_if_they_are_missing(page, visit):
    from fake_model import obeying_models
    from serving_server import running

    from mt_cli.serving.service import Service

    visit()
    assert page.evaluate("document.getElementById('terms-box').hidden")  # Its model has not learned to use them.
    with running(Service(obeying_models(("en", "de")))) as server:
        address = f"{server.url}/#en-de"
        page.open(address)
        page.wait_until("document.getElementById('terms-box').hidden", False)
        page.evaluate("document.getElementById('terms-box').open = true, document.getElementById('terms').focus()")
        page.type("brake drum\tTrommel\nxyz = fehlt\nnothing")
        enter(page, "brake drums xyz")
        page.wait_for_text("#result", "Trommel")
        assert "xyz" in page.text("#notes") and "brake" not in page.text("#notes")
        page.open("about:blank")
        page.open(address)
        page.wait_until("document.getElementById('terms').value.includes('xyz = fehlt')")
