"""Counts what a call asks of a device: operators to launch, and times that Python waits for a result."""

from collections import Counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# They give a tensor without computing anything, although their schemas do not say so.
FREE = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "slice", "set_"}
# What they return, or its shape, depends on numbers in a tensor.
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "_unique2", "equal", "is_nonzero"}


class Launches(TorchDispatchMode):
    """Within it, ``operators`` and ``waits`` count by name what runs on ``device``.

    Views and metadata are free. A wait is a number or a shape that Python asks of a tensor, or a copy between this
    device and the CPU that is not asked to run on by itself.
    """

    def __init__(self, device="cpu"):
        super().__init__()
        self.device = device
        self.operators, self.waits = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        boolean = [x for x in tree_leaves(kwargs.get("indices", args[1:2])) if is_on(x, self.device)]
        made = func(*args, **kwargs)
        read, written = ([x for x in tree_leaves(y) if isinstance(x, Tensor)] for y in ((args, kwargs), made))
        here = any(is_on(x, self.device) for x in read + written)
        if here and not func.is_view and name not in FREE:
            self.operators[name] += 1
        by_mask = name.startswith(("index", "_index_put")) and any(x.dtype == torch.bool for x in boolean)
        across = name in ("_to_copy", "copy_") and any(not is_on(x, self.device) for x in read + written)
        if here and (name in WAITS or by_mask or (across and not kwargs.get("non_blocking", args[2:] == (True,)))):
            self.waits[name] += 1
        return made


def is_on(x, device):
    return isinstance(x, Tensor) and x.device.type == device
