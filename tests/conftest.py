import importlib
import importlib.util
import sys
import types

import pytest
import torch


@pytest.fixture(scope="session")
def d2l():
    """The d2l package, with stand-ins for torchvision where that does not import beside this build of torch."""
    pytest.importorskip("d2l", reason="d2l is not installed: pip install --no-deps -r requirements-d2l.txt")
    if importlib.util.find_spec("torchvision") is None:
        torchvision = types.ModuleType("torchvision")
        torchvision.transforms = types.ModuleType("torchvision.transforms")
        sys.modules.setdefault("torchvision", torchvision)
        sys.modules.setdefault("torchvision.transforms", torchvision.transforms)
    return importlib.import_module("d2l.torch")


@pytest.fixture(autouse=True)
def _same_randomness():
    torch.manual_seed(0)
