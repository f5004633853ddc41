"""What attention in tiles takes in memory beyond its inputs: counted tensor by tensor, and by a whole process."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attn_core import masks
from attn_core.mechanisms import flash
from attn_core.mechanisms.flash import flash_attention
from benchmarks.measure import fresh, peak_memory


class Memory(TorchDispatchMode):
    """Follows the bytes of tensors made within it: how many there are now, and the most there have been at once."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.seen = weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            storage = x.untyped_storage() if isinstance(x, torch.Tensor) else None
            if storage is not None and id(storage) not in before and storage not in self.seen:
                self.seen.add(storage)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._free, storage.nbytes())
                self.most = max(self.most, self.now)
        return made

    def _free(self, size):
        self.now -= size


def test_the_memory_of_this_test_follows_tensors():
    with Memory() as memory:
        x = torch.ones(1000)
        y = x.view(10, 100) @ torch.ones(100, 1)
        del x
        z = y + 1
    assert memory.most == 4 * (1000 + 100 + 10) and memory.now == 4 * 20
    del y, z
    assert memory.now == 0


def most_beyond(keys, dtype, layout, **settings):
    """Bytes of tensors at once, beyond the inputs, of a forward pass and of a backward pass less its gradients."""
    q, k, v = (torch.randn(1, n, 4, 32).to(dtype).transpose(1, 2) for n in (128, keys, keys))
    if layout == "heads first":
        q, k, v = (x.contiguous() for x in (q, k, v))
    settings = {name: make(keys) for name, make in settings.items()}
    with Memory() as forward, torch.no_grad():
        flash_attention(q, k, v, **settings)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    out = flash_attention(q, k, v, **settings)
    with Memory() as backward:
        gradients = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert all(x.dtype == dtype for x in gradients)
    return forward.most, backward.most - sum(x.untyped_storage().nbytes() for x in gradients)


@pytest.mark.parametrize("layout", ["heads first", "length first"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"causal": lambda keys: True},
        {"mask": lambda keys: masks.padding(torch.tensor([keys - 5]), keys)},
        {"bias": lambda keys: torch.zeros(1, keys)},
    ],
)
def test_extra_memory_does_not_grow_with_the_keys(settings, layout):
    short, long = (most_beyond(keys, torch.float32, layout, **settings) for keys in (4096, 65536))
    assert short == long
    scores = 4 * 4 * 128 * flash.KEY_TILE  # bytes of one tile of float32 scores
    assert max(short) < 4 * scores


def test_extra_memory_in_half_precision_is_that_of_float32_sums_for_the_gradients_of_keys_and_values():
    short, long = (most_beyond(keys, torch.bfloat16, "length first") for keys in (4096, 65536))
    assert short[0] == long[0]
    assert long[1] - short[1] == 2 * 4 * (65536 - 4096) * 4 * 32


def test_extra_memory_does_not_grow_with_the_batch():
    def most(batch):
        q, k, v = (torch.randn(batch, 4, n, 32).bfloat16() for n in (1, 1024, 1024))
        with Memory() as memory:
            out = flash_attention(q, k, v)
        return memory.most - out.untyped_storage().nbytes() - 4 * out.numel() // 32

    assert most(256) == most(64)


def test_no_key_is_repeated_for_the_heads_of_a_group():
    q, k, v = (torch.randn(1, heads, n, 64) for heads, n in ((64, 1), (1, 8192), (1, 8192)))
    with Memory() as memory:
        flash_attention(q, k, v)
    assert memory.most < k.numel() * 4


def test_the_heads_of_a_group_share_the_rows_of_a_tile():
    q, k, v = torch.randn(1, 32, 512, 16), torch.randn(1, 1, 512, 16), torch.randn(1, 1, 512, 16)
    with Memory() as memory:
        out = flash_attention(q, k, v)
    assert memory.most - 4 * out.numel() < 2 * 4 * flash.ROWS * flash.KEY_TILE


def peak_at_8192():
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 8, 8192, 64) for _ in range(3))
    flash_attention(*(x[:, :, :600] for x in (q, k, v)))  # loads the kernels
    return peak_memory(lambda: flash_attention(q, k, v, causal=True), torch.device("cpu"))["memory"]


def test_peak_memory_of_a_process_at_8192():
    # The scores alone would take 2,048 MiB; 16 of these are the output.
    assert fresh(peak_at_8192) < 64
