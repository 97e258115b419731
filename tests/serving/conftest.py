"""Servers with a tiny model that writes its words in capitals."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models(trained):
    from mt_cli.serving.models import Models, Source

    return Models.load([Source(Path(trained), device="cpu", precision="fp32")])


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
