"""Servers with a tiny model that writes its words in capitals."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models(trained):
    from mt_cli.serving.models import Models

    return Models.load([Path(trained)], device="cpu", precision="fp32")


@pytest.fixture
def serve(models):
    """A function that starts a server with options of `Service` and `Limits`, as a context manager."""
    from serving_server import running

    from mt_cli.serving.service import Limits, Service

    return lambda limits=None, **options: running(Service(models, Limits(**limits or {}), **options))


@pytest.fixture(scope="module")
def server(models):
    """A server for the tests of a file, which must leave it as it is; no thread of it lives on beside other tests."""
    from serving_server import running

    from mt_cli.serving.service import Service

    with running(Service(models)) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from chromium import EXECUTABLE, Chromium

    if EXECUTABLE is None:
        pytest.skip("neither Chromium nor Chrome is installed")
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def page(browser):
    """A tab of its own, without cookies or storage; no test may break the content policy or leave an exception."""
    from chromium import Page

    page = Page(browser)
    yield page
    page.browser.pump()
    page.close()
    assert page.problems == []


@pytest.fixture(scope="session")
def axe(root):
    """Source of axe-core (`npm install axe-core`), from `AXE_CORE` or a folder `node_modules`."""
    paths = [folder / "node_modules/axe-core/axe.min.js" for folder in (root, *root.parents)]
    path = os.environ.get("AXE_CORE") or next(filter(Path.is_file, paths), None)
    if path is None:
        pytest.skip("axe-core is not installed: `npm install axe-core`, or set AXE_CORE to its axe.min.js")
    return Path(path).read_text(encoding="utf-8")
