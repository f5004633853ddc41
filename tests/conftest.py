import pytest
import torch

from attn_book.companion import load_d2l


@pytest.fixture(scope="session")
def d2l():
    """The d2l package, with stand-ins for torchvision where that is not installed."""
    pytest.importorskip("d2l", reason="d2l is not installed: pip install --no-deps -r requirements/d2l.txt")
    return load_d2l()


@pytest.fixture(autouse=True)
def _same_randomness():
    torch.manual_seed(0)
