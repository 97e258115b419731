"""Servers with a tiny model that writes its words in capitals."""

from pathlib import Path

import pytest
from serving_server import running

from mt_cli.features.serving.models import Models, Source
from mt_cli.features.serving.service import Service


@pytest.fixture
def serve():
    """A function that starts a server with a service, as a context manager."""
    return running


@pytest.fixture(scope="session")
def models(trained):
    return Models.load([Source(Path(trained), device="cpu", precision="fp32")])


@pytest.fixture
def server(models):
    with running(Service(models)) as server:
        yield server
