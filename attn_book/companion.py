"""Loads the package of *Dive into Deep Learning* (d2l) for comparisons; nothing else in this package needs it."""

import importlib
import importlib.util
import sys
import types
from types import ModuleType


def load_d2l() -> ModuleType:
    """The module ``d2l.torch`` of d2l 0.17.6.

    It imports torchvision, which it needs only for images. If torchvision is not installed, as beside a CPU build of
    torch, empty modules replace it during the import and are removed afterwards.

    Raises:
        ImportError: if d2l is not installed.
    """
    if importlib.util.find_spec("d2l") is None:
        raise ImportError(
            "d2l is not installed; try: pip install --no-deps d2l==0.17.6, and for what it imports, "
            'in this book\'s folder: pip install ".[bench]"'
        )
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module("d2l.torch")
    torchvision, transforms = types.ModuleType("torchvision"), types.ModuleType("torchvision.transforms")
    torchvision.transforms = transforms  # type: ignore[attr-defined]
    stand_ins = {"torchvision": torchvision, "torchvision.transforms": transforms}
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module("d2l.torch")
    finally:
        for name in stand_ins:  # other code may look for the real one
            del sys.modules[name]
