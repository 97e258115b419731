from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # Of such small tensors more threads only wait for each other.

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def one_seed():
    torch.manual_seed(0)


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def multi30k():
    folder = ROOT.parent / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("the Multi30k captions are not beside the project")
    return folder
