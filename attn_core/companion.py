"""d2l, the book that this one grew beside, loaded for comparisons; nothing in the package needs it."""

import importlib
import importlib.util
import sys
import types
from types import ModuleType


def load_d2l() -> ModuleType:
    """The module ``d2l.torch`` of d2l 0.17.6.

    It imports torchvision at the top and uses it for pictures only. Where torchvision is not installed, as beside a CPU
    build of torch, empty modules stand in for it; one that is installed is left alone.

    Raises:
        ImportError: d2l is not installed.
    """
    if importlib.util.find_spec("d2l") is None:
        raise ImportError("d2l is not installed; try: pip install --no-deps d2l==0.17.6")
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        torchvision = types.ModuleType("torchvision")
        transforms = types.ModuleType("torchvision.transforms")
        torchvision.transforms = transforms  # type: ignore[attr-defined]
        sys.modules["torchvision"] = torchvision
        sys.modules["torchvision.transforms"] = transforms
    return importlib.import_module("d2l.torch")
