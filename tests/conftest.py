import pytest
import torch

from attn_book.companion import load_d2l


@pytest.fixture(scope="session")
def d2l():
    """The d2l package, with stand-ins for torchvision where that is not installed."""
    pytest.importorskip("d2l", reason="d2l is not installed: pip install --no-deps -r requirements/d2l.txt")
    return load_d2l()


def pytest_ignore_collect(collection_path, config):
    """For the tests on a GPU, import no other files: a machine that has one may lack what they need."""
    if config.option.markexpr == "gpu":
        files = [collection_path] if collection_path.is_file() else collection_path.rglob("test_*.py")
        return not any("mark.gpu" in file.read_text(encoding="utf-8") for file in files) or None


@pytest.fixture(autouse=True)
def _same_randomness():
    torch.manual_seed(0)
