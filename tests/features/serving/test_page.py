"""Laws of the page of `mt serve`, tried in Chromium as a person would; skipped where it is not installed."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from chromium import EXECUTABLE, Chromium, Page
from fake_model import known_models
from serving_server import running

from mt_cli.features.serving.service import Service

TEXT = "A dog runs. The children sleep."
TRANSLATION = "Ein Hund läuft. Die Kinder schlafen."
TRANSLATED = "document.querySelector('#result:not(.old):not(:empty)[aria-busy=false]') !== null"
LIT = "[...document.querySelectorAll('.lit')].map(word => word.textContent)"
ITEMS = "[...document.querySelectorAll('[role=menuitemradio]')].map(item => item.textContent)"
FOCUS = "document.activeElement.textContent"


@pytest.fixture(scope="module")
def served():
    """The server, with models that know a few sentences: `url`."""
    with running(Service(known_models())) as server:
        yield SimpleNamespace(url=f"{server.url}/")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if EXECUTABLE is None:
        pytest.skip("neither Chromium nor Chrome is installed")
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def page(browser):
    """A tab of its own, without cookies or storage; no test may break the content policy or leave an exception."""
    page = Page(browser)
    yield page
    page.browser.pump()
    page.close()
    assert page.problems == []


@pytest.fixture
def visit(page, served):
    """Opens the page with a fragment, types a text, and waits for its translation."""

    def visit(fragment="#en-de", text=""):
        page.open(served.url + fragment)
        page.wait_until("document.getElementById('source-language').disabled", False)
        if text:
            enter(page, text)
            page.wait_until(TRANSLATED)
        return page

    return visit


def enter(page, text):
    page.evaluate("document.getElementById('source').focus()")
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


def choose_last_alternative(page, text):
    open_menu(page)
    page.press("End")
    page.press("Enter")
    page.wait_for_text("#result", text)


def test_translation_appears_when_typing_pauses(page, visit):
    visit()
    asked = []
    page.intercept("v1/translate", lambda request: asked.append(json.loads(request["postData"])["text"]))
    for letter in TEXT:
        enter(page, letter)
    page.wait_for_text("#result", TRANSLATION)
    assert asked == [TEXT]


def test_stale_answer_never_replaces_a_newer_one(page, visit):
    visit()
    first = page.evaluate("fetch('v1/translate', {method: 'POST', body: '{\"text\": \"STALE\"}'}).then(r => r.json())")
    page.intercept("v1/translate", lambda request: "hold" if TEXT not in request["postData"] else None)
    enter(page, "A dog runs.")
    page.wait_until("document.querySelector('#result').getAttribute('aria-busy')", "true")
    page.wait_for(lambda: page.held, "a request")
    enter(page, " The children sleep.")
    page.wait_for_text("#result", TRANSLATION)
    for number in page.held:
        page.fulfill(number, 200, first)
    for _ in range(10):
        page.browser.pump()
        assert page.text("#result") == TRANSLATION


def test_last_translation_stays_dimmed_until_the_next_one(page, visit):
    visit(text="A dog runs.")
    page.intercept("v1/translate", lambda request: "hold")
    enter(page, " The children sleep.")
    page.wait_until("document.querySelector('#result').className", "text old")
    assert page.text("#result") == "Ein Hund läuft."


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
    page.press("ArrowDown")
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.wait_until(LIT, ["children", "Kinder"])
    assert page.text("#status") == "Kinder: children, 90 percent sure"


@pytest.mark.parametrize(
    ("fragment", "width"),
    [("#en-de", 1200), ("#ar-en", 320)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in [("#en-de", 320), ("#ar-en", 1200), ("#auto-de", 320)]],
)
def test_mirror_lies_exactly_below_the_text(page, visit, fragment, width):
    page.resize(width)
    texts = [
        "A dog runs.\n",
        "\tA dog  runs.   \n\nThe children sleep." * 9,
        "longword" * 99,
        "كلب يجري. abc 123. " * 30,
    ]
    visit(fragment)
    for text in texts:
        enter(page, text)
        page.wait_until(TRANSLATED)
        page.evaluate("source.style.height = '0', mirror.style.alignSelf = 'start'")
        text_height, mirror_height = page.evaluate("[source.scrollHeight, mirror.offsetHeight]")
        assert abs(text_height - mirror_height) <= 1  # Rounding.
        page.evaluate("source.style.height = mirror.style.alignSelf = ''")
        assert page.evaluate("source.scrollHeight <= source.clientHeight")
        page.evaluate("source.select()")


def test_alternative_is_chosen_by_keyboard(page, visit):
    visit(text=TEXT)
    page.press("Tab")
    page.press("Tab")
    assert page.evaluate(FOCUS) == "Ein Hund läuft."
    page.press("Enter")
    page.wait_until(ITEMS, ["Ein Hund läuft.", "Ein Hund rennt.", "Es läuft ein Hund."])
    assert page.evaluate(FOCUS) == "Ein Hund läuft."
    page.press("Escape")
    page.wait_until("menu.matches(':popover-open')", False)
    assert page.evaluate(FOCUS) == "Ein Hund läuft."
    page.press(" ")
    page.wait_until("document.activeElement.getAttribute('role')", "menuitemradio")
    page.press("ArrowDown")
    page.press("Enter")
    page.wait_for_text("#result", "Ein Hund rennt. Die Kinder schlafen.")
    assert page.evaluate(FOCUS) == "Ein Hund rennt."
    assert page.text("#status") == "Replaced by: Ein Hund rennt."


def test_chosen_alternative_stays_when_the_text_goes_on_until_it_is_taken_back(page, visit):
    visit(text="A dog runs.")
    choose_last_alternative(page, "Es läuft ein Hund.")
    enter(page, " The children sleep.")
    page.wait_for_text("#result", "Es läuft ein Hund. Die Kinder schlafen.")
    open_menu(page)
    assert page.evaluate(FOCUS) == "Es läuft ein Hund."
    page.press("Home")
    page.press("Enter")
    page.wait_for_text("#result", TRANSLATION)


def test_alternative_is_chosen_by_mouse(page, visit):
    visit(text=TEXT)
    page.click("document.querySelectorAll('.sentence')[1]")
    page.wait_until(ITEMS, ["Die Kinder schlafen.", "Die Kinder schliefen."])
    page.click("document.querySelectorAll('[role=menuitemradio]')[1]")
    page.wait_for_text("#result", "Ein Hund läuft. Die Kinder schliefen.")


def test_words_of_a_chosen_alternative_light_up_too(page, visit):
    visit(text="A dog runs.")
    choose_last_alternative(page, "Es läuft ein Hund.")
    page.hover(word("result", "läuft"))
    page.wait_until(LIT, ["dog", "läuft"])


def test_sentence_that_the_model_cannot_read_well_is_named(page, visit):
    visit(text="A very long dog. A dog runs.")
    note = "Longer than the sentences of training, so check: A very long dog."
    assert page.evaluate("[...document.querySelectorAll('#notes li')].map(item => item.textContent)") == [note]


def test_confidence_is_shown_by_more_than_colour_and_can_be_switched_off(page, visit):
    visit(text=TEXT)
    style = "(w => getComputedStyle(w).textDecorationLine + ' ' + getComputedStyle(w).textDecorationStyle)"
    styles = f"['Ein', 'Hund', 'läuft.'].map(text => {style}({word('result', 'X').replace(json.dumps('X'), 'text')}))"
    assert page.evaluate(styles) == ["none solid", "underline dotted", "underline wavy"]
    page.click("document.getElementById('confidence')")
    assert page.evaluate(styles) == ["none solid"] * 3
    visit(text=TEXT)
    assert page.evaluate(styles) == ["none solid"] * 3  # It is remembered.


def test_file_goes_in_and_comes_out(page, visit, tmp_path):
    visit()
    (tmp_path / "letter.txt").write_text("A dog runs.\nThe children sleep.\n")
    page.click("document.getElementById('files-tab')")
    page.choose_files("#file", tmp_path / "letter.txt")
    page.wait_until("document.querySelector('#files a')?.download", "letter.de.txt")
    page.download_to(tmp_path)
    for _ in range(2):  # It can be saved as often as it is wanted.
        page.click("document.querySelector('#files a')")
        assert page.file(tmp_path / "letter.de.txt").read_text() == "Ein Hund läuft.\nDie Kinder schlafen.\n"
        (tmp_path / "letter.de.txt").unlink()


def test_file_is_dropped_anywhere_on_the_page(page, visit, tmp_path):
    (tmp_path / "letter.txt").write_text("A dog runs.")
    visit()
    page.drop(tmp_path / "letter.txt", "document.getElementById('model')")
    page.wait_until("document.querySelector('#files a')?.download", "letter.de.txt")
    assert page.evaluate("document.getElementById('files-panel').checkVisibility()")


@pytest.mark.parametrize(
    ("has_heading", "expected"),
    [(True, "id,text\r\n1,Ein Hund läuft.\r\n"), (False, "id,TEXT\r\n1,Ein Hund läuft.\r\n")],
)
def test_column_of_a_table_is_asked_for(page, visit, tmp_path, has_heading, expected):
    visit()
    (tmp_path / "table.csv").write_bytes(b"id,text\r\n1,A dog runs.\r\n")
    page.click("document.getElementById('files-tab')")
    page.choose_files("#file", tmp_path / "table.csv")
    page.wait_until("[...document.querySelectorAll('#files option')].map(option => option.text)", ["1: id", "2: text"])
    page.evaluate("document.querySelector('#files select').value = '1'")
    if not has_heading:
        page.click("document.querySelector('#files input')")
    page.click("document.querySelector('#files button')")
    page.wait_until("document.querySelector('#files a')?.download", "table.de.csv")
    page.download_to(tmp_path)
    page.click("document.querySelector('#files a')")
    assert page.file(tmp_path / "table.de.csv").read_bytes().decode() == expected


def test_file_that_cannot_be_translated_says_why(page, visit, tmp_path):
    visit()
    page.click("document.getElementById('files-tab')")
    for name, content in {"picture.png": b"x", "empty.txt": b"", "broken.txt": b"\xff"}.items():
        (tmp_path / name).write_bytes(content)
        page.choose_files("#file", tmp_path / name)
    page.wait_until("document.querySelectorAll('#files .error').length", 3)
    assert page.evaluate("[...document.querySelectorAll('#files .status')].map(status => status.textContent)") == [
        "Line 1: not utf-8 (found 0xFF); save it as UTF-8",
        "The file is empty.",
        "Files of this kind are not supported (.png).",
    ]
    buttons = "[...document.querySelectorAll('#files button')].map(button => button.textContent)"
    assert page.evaluate(buttons) == ["Remove"] * 3  # The same file would be refused again.


def test_busy_server_is_asked_again_by_itself(page, visit):
    visit()
    busy = [(429, {"error": "Too many requests."}, {"Retry-After": "1"})] * 2
    page.intercept("v1/translate", lambda request: busy.pop() if busy else None)
    enter(page, TEXT)
    page.wait_until("document.getElementById('message-text').textContent", "Too many requests. Trying again")
    page.wait_for_text("#result", TRANSLATION)
    page.wait_until("document.getElementById('message').hidden")
    assert not busy


def test_file_waits_while_the_server_is_busy(page, visit, tmp_path):
    visit()
    busy = [(429, {"error": "Too many requests."}, {"Retry-After": "1"})]
    page.intercept("translate_file", lambda request: busy.pop() if busy else None)
    (tmp_path / "letter.txt").write_text("A dog runs.")
    page.click("document.getElementById('files-tab')")
    page.choose_files("#file", tmp_path / "letter.txt")
    page.wait_until("document.querySelector('#files a')?.download", "letter.de.txt")
    assert not busy


def test_page_goes_on_when_an_unreachable_server_is_back(page, visit):
    visit()
    page.call("Network.enable")
    unlimited = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", offline=True, **unlimited)
    enter(page, TEXT)
    page.wait_until("document.getElementById('message-text').textContent", "The server cannot be reached. Trying again")
    page.call("Network.emulateNetworkConditions", offline=False, **unlimited)
    page.wait_for_text("#result", TRANSLATION)


def test_refused_request_asks_for_a_key_that_only_this_tab_remembers(page, visit):
    visit()
    refusal = (403, {"error": "The key is missing or wrong."}, {})
    right = "Bearer secret"
    page.intercept("v1/translate", lambda r: None if r["headers"].get("Authorization") == right else refusal)
    enter(page, TEXT)
    page.wait_for_text("#key-error", "This server needs a key.")
    page.evaluate("key.focus()")
    page.type("secret")
    page.press("Enter")
    page.wait_for_text("#result", TRANSLATION)
    assert page.evaluate("[sessionStorage.getItem('key'), localStorage.length]") == ["secret", 0]


def test_text_that_is_too_long_is_not_sent(page, visit):
    visit()
    page.intercept("v1/translate", lambda request: pytest.fail("sent"))
    enter(page, "A dog runs. " * 1700)
    page.wait_for_text("#message", "The text is 400 characters too long for this server.")
    assert page.text("#count-text") == "20,400 / 20,000"


@pytest.mark.parametrize("fragment", ["#en-de", "#en-ar", "#he-en", "#auto-de"])
def test_narrow_window_needs_no_scrolling_sideways(page, visit, fragment, tmp_path):
    page.resize(320)
    visit(fragment, TEXT + " " + "verylongword" * 9)
    fits = "document.documentElement.scrollWidth <= 320"
    assert page.evaluate(fits)
    open_menu(page) if fragment == "#en-de" else None
    assert page.evaluate(fits)
    (tmp_path / ("name" * 40 + ".txt")).write_text("A dog runs.")
    page.evaluate("document.getElementById('files-tab').click()")
    page.choose_files("#file", tmp_path / ("name" * 40 + ".txt"))
    page.wait_until("document.querySelectorAll('#files a').length", 1)
    assert page.evaluate(fits)


@pytest.mark.parametrize(
    ("fragment", "text", "translation"),
    [
        ("#ar-en", "كلب يجري.", "A dog runs."),
        ("#en-he", "A dog runs.", "כלב רץ."),
        ("#auto-ar", "A dog runs.", "كلب يجري."),
    ],
)
def test_each_side_has_the_direction_of_its_language(page, visit, fragment, text, translation):
    visit(fragment, text)
    assert page.text("#result") == translation
    source, target = fragment[1:].split("-")
    looks = page.evaluate("[source, result].map(node => [node.lang, getComputedStyle(node).direction])")
    directions = {"ar": "rtl", "he": "rtl", "en": "ltr"}
    source = "en" if source == "auto" else source
    assert looks == [[source, directions[source]], [target, directions[target]]]
    assert page.evaluate("getComputedStyle(mirror).direction") == directions[source]


def test_language_is_detected_and_a_target_that_it_cannot_have_is_changed(page, visit):
    visit("#auto-de", "Ein Hund läuft.")
    assert page.text("#result") == "A dog runs."
    selected = "['source-language', 'target-language'].map(id => document.getElementById(id).selectedOptions[0].text)"
    assert page.evaluate(selected) == ["Detected: German", "English"]
    assert page.evaluate("location.hash") == "#auto-en"


def test_swap_translates_back_and_typing_can_be_undone(page, visit):
    visit(text="A dog runs.")
    page.click("document.getElementById('swap')")
    page.wait_for_text("#result", "A dog runs.")
    assert page.evaluate("[source.value, location.hash]") == ["Ein Hund läuft.", "#de-en"]
    page.evaluate("source.focus()")
    page.command("undo")
    page.wait_until("source.value", "A dog runs.")


def test_swap_is_off_where_no_model_goes_back(page, visit, served):
    answer = visit().evaluate("fetch('v1/models').then(response => response.json())")
    answer["models"] = [{**answer["models"][1]}]
    page.intercept("v1/models", lambda request: (200, answer, {}))
    visit("")
    assert page.evaluate("[document.getElementById('swap').disabled, source.lang, result.innerText]") == [
        True,
        "en",
        "",
    ]


def test_address_names_the_languages_and_never_the_text(page, visit):
    visit("#en-he", "A dog runs.")
    choose(page, "target-language", "ar")
    page.wait_for_text("#result", "كلب يجري.")
    assert page.evaluate("location.hash") == "#en-ar"
    page.evaluate("void (location.hash = '#en-de')")
    page.wait_for_text("#result", "Ein Hund läuft.")


@pytest.mark.parametrize("fragment", ["#en-ja", "#%E0", "#nonsense"])
def test_address_of_a_direction_that_is_not_served_is_told(page, visit, fragment):
    visit(fragment)
    page.wait_until("document.getElementById('message-text').textContent.includes('is not translated here')")
    assert page.evaluate("location.hash") == "#auto-de"
    enter(page, "A dog runs.")
    page.wait_for_text("#result", "Ein Hund läuft.")
    page.evaluate(f"void (location.hash = '{fragment}')")
    page.wait_until("document.getElementById('message-text').textContent.includes('is not translated here')")
    assert page.text("#result") == "Ein Hund läuft."
    enter(page, " The children sleep.")
    page.wait_for_text("#result", TRANSLATION)
    assert page.evaluate("document.getElementById('message').hidden")


def test_page_names_the_model_and_how_good_it_was(page, visit):
    visit()
    assert page.text("#model-date") == "weights of 27 November 2026"
    assert " ".join(page.text("#scores").split()) == "Test set BLEU 39.2 chrF 61.0 on 1,000 sentences"
    asked = []
    page.intercept("v1/translate", lambda request: asked.append(json.loads(request["postData"]).get("model")))
    choose(page, "model-select", "subtitles")
    enter(page, TEXT)
    page.wait_until(TRANSLATED)
    assert asked == ["subtitles"]
    assert " ".join(page.text("#scores").split()) == "Test set BLEU 33.7 chrF 57.4 on 2,500 sentences"


def test_colours_follow_the_system_until_the_switch_is_used(page, visit):
    background = "getComputedStyle(document.body).backgroundColor"
    light = visit().evaluate(background)
    page.emulate(prefers_color_scheme="dark")
    dark = page.evaluate(background)
    assert dark != light
    page.click("theme")
    assert page.evaluate(background) == light
    assert visit().evaluate(background) == light  # It is remembered.
    page.click("theme")
    assert page.evaluate("[localStorage.length]") == [0]  # As the system has it: followed again.


def test_page_works_where_storage_is_blocked(page, visit):
    blocked = "Object.defineProperty(window, '%s', {get() { throw new DOMException('blocked', 'SecurityError') }});"
    script = blocked % "localStorage" + blocked % "sessionStorage"
    page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    visit(text=TEXT)
    page.click("theme")
    assert page.text("#result") == TRANSLATION


def test_composition_of_an_input_method_is_not_sent_before_it_ends(page, visit):
    visit()
    asked = []
    page.intercept("v1/translate", lambda request: asked.append(json.loads(request["postData"])["text"]))
    page.evaluate("source.focus()")
    page.call("Input.imeSetComposition", text="A do", selectionStart=4, selectionEnd=4)
    paused = "new Promise(resolve => setTimeout(resolve, 600))"
    page.evaluate(paused)
    assert asked == []
    page.type("A dog runs.")
    page.wait_for_text("#result", "Ein Hund läuft.")
    assert asked == ["A dog runs."]


def test_markup_in_texts_stays_text(page, visit):
    text = "<img src=x onerror=alert(1)><b>A dog</b> &amp; 'x' 𝔘𝔫𝔦 🐕‍🦺 runs."
    visit(text=text)
    assert page.text("#result") == text.upper()
    assert page.evaluate("[mirror, result].map(node => node.querySelectorAll('img, b').length)") == [0, 0]
    page.hover(word("result", "RUNS."))
    page.wait_until(LIT, ["runs.", "RUNS."])


def test_lost_spans_are_named(page, visit):
    visit(text="Hello {name}.")
    assert page.text("#notes") == "Missing in the translation: {name}"


@pytest.mark.parametrize("secure", [True, False])
def test_translation_is_copied_also_without_https(page, visit, secure):
    if not secure:
        script = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    visit(text=TEXT)
    page.evaluate("source.select()")
    page.command("copy")  # All tabs have one clipboard.
    page.click("document.getElementById('copy')")
    page.wait_for_text("#status", "Copied")
    page.evaluate("source.select()")
    page.command("paste")
    page.wait_until("source.value", TRANSLATION)


@pytest.fixture(scope="module")
def axe(root):
    """Source of axe-core (`npm install axe-core`), from `AXE_CORE` or a folder `node_modules`."""
    folders = [folder / "node_modules/axe-core" for folder in (root, *root.parents)]
    path = next((path for folder in folders if (path := folder / "axe.min.js").is_file()), None)
    path = os.environ.get("AXE_CORE", path)
    if path is None:
        pytest.skip("axe-core is not installed: `npm install axe-core`, or set AXE_CORE to its axe.min.js")
    return Path(path).read_text(encoding="utf-8")


def files(page):
    page.click("document.getElementById('files-tab')")


def refused(page):
    page.intercept("v1/translate", lambda request: (403, {"error": "The key is missing."}, {}))
    enter(page, " More.")
    page.wait_for_text("#key-error", "This server needs a key.")


def busy(page):
    page.intercept("v1/translate", lambda request: (429, {"error": "Too many requests."}, {"Retry-After": "60"}))
    enter(page, " More.")
    page.wait_until("document.getElementById('message').hidden", False)
    page.evaluate(
        "Promise.all(document.getAnimations().filter(a => a.effect.target.id === 'result').map(a => a.finished))"
    )


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1200, "light"), (320, "dark")]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in [(1200, "dark"), (320, "light")]],
)
@pytest.mark.parametrize(
    ("fragment", "act"),
    [
        ("#en-de", lambda page: None),
        ("#en-ar", lambda page: None),
        ("#en-de", open_menu),
        ("#en-de", files),
        ("#en-de", refused),
        ("#auto-de", busy),
    ],
)
def test_axe_finds_no_barrier(page, visit, axe, fragment, act, width, scheme):
    page.resize(width)
    page.emulate(prefers_color_scheme=scheme)
    visit(fragment, TEXT + " Somebody came. {name}")
    act(page)
    page.evaluate(axe + ";0")
    found = page.evaluate(
        "axe.run().then(({violations}) => violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html)]))"
    )
    assert found == []
