"""Longformer's attention: a window for all tokens, and a few global tokens that read and are read by all."""

import math

import torch
from torch import Tensor, nn

from attn_core.contract import check_integer, contract, kind, settings
from attn_core.derivatives import refuse_transforms
from attn_core.mechanisms.dense import attention
from attn_core.mechanisms.window import attend_in_window
from attn_core.projections import check_vectors, head_size, initialise, is_plain_linear, split_heads


class LongformerAttention(nn.Module):
    """Multi-head self-attention to a sliding window and to global tokens.

    Each token sees the ``window`` tokens on either side of it (half the paper's w), its own and all global tokens, in
    one softmax; one that is global and lies in the window counts once. A global token sees all tokens, through
    projections of its own, which start as copies of the others. Time and memory are linear in the length, and in the
    number of global tokens. There are no derivatives beyond the first.

    Source: Beltagy et al. 2020, section 3.1.
    """

    def __init__(self, model_dim: int, num_heads: int, window: int, *, bias: bool = True) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_size(model_dim, num_heads)
        check_integer("window", window, at_least=0)
        self.window = window
        self.query, self.key, self.value = (nn.Linear(model_dim, model_dim, bias=bias) for _ in range(3))
        self.query_global, self.key_global, self.value_global = (
            nn.Linear(model_dim, model_dim, bias=bias) for _ in range(3)
        )
        self.out = nn.Linear(model_dim, model_dim, bias=bias)
        initialise(self.query, self.key, self.value, self.out)
        for name in ("query", "key", "value"):
            getattr(self, f"{name}_global").load_state_dict(getattr(self, name).state_dict())

    def forward(self, x: Tensor, global_tokens: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend from each token of ``x (B, T, model_dim)`` as the class says; returns the same shape.

        ``global_tokens (B, T)`` marks those that are global, none by default. It may stay on the CPU: how many there
        are is then known without waiting for the device. ``mask (B, T)`` is False at padding, which takes no part even
        where it is marked; the output there is that of zeros.
        """
        check_vectors("x", x, self.num_heads * self.head_dim, self.query)
        refuse_transforms("LongformerAttention", x)
        for name, chosen in (("global_tokens", global_tokens), ("mask", mask)):
            if chosen is not None and (chosen.dtype != torch.bool or chosen.shape != x.shape[:2]):
                raise ValueError(f"{name}: expected a boolean tensor of shape {(*x.shape[:2],)}, got {kind(chosen)}")
        q, k, v = (split_heads(projection(x), self.head_dim) for projection in (self.query, self.key, self.value))
        window = self.window, self.window
        most = 0 if global_tokens is None or x.shape[0] == 0 else int(global_tokens.sum(1).max())
        if global_tokens is None or most == 0:
            return self._merge(attend_in_window(contract(q, k, v, mask=_per_key(mask)), *window), mask)
        marked = global_tokens.to(x.device, non_blocking=True)
        if mask is not None:
            marked = marked & mask
        counts = marked.sum(1)
        # Rows have as many global tokens as the row with most of them; ``present`` says which of these are true.
        positions = marked.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        present = torch.arange(most, device=x.device) < counts[:, None]
        rows = torch.arange(x.shape[0], device=x.device)[:, None]
        global_k, global_v = (y.transpose(1, 2)[rows, positions].transpose(1, 2) for y in (k, v))
        # Global keys are read on their own, so the window leaves them out.
        near = contract(q, k, v, mask=_per_key(~marked if mask is None else mask & ~marked))
        out = attend_in_window(near, *window, global_k=global_k, global_v=global_v, global_mask=present)
        of_global, out = self._attend_to_all(x[rows, positions], x, mask).transpose(1, 2), out.transpose(1, 2)
        of_global = torch.where(present[..., None, None], of_global.to(out.dtype), out[rows, positions])
        return self._merge(out.index_put((rows, positions), of_global).transpose(1, 2), mask)

    extra_repr = settings

    def _attend_to_all(self, queries: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from N global tokens ``(B, N, C)`` to all of ``x (B, T, C)``: ``(B, H, N, D)``."""
        q, key_mask = split_heads(self.query_global(queries), self.head_dim), _per_key(mask)
        if queries.shape[1] > self.head_dim or not is_plain_linear(self.key_global, self.value_global):
            k, v = (split_heads(projection(x), self.head_dim) for projection in (self.key_global, self.value_global))
            return attention(q, k, v, mask=key_mask)
        # q · (W x) = (Wᵀ q) · x, and the mean of projected values is the projected mean: with few queries, projecting
        # them and the outputs costs less than projecting all tokens. The keys' bias changes no weight.
        by_head = (self.num_heads, self.head_dim, -1)
        q_in_model = (q @ self.key_global.weight.view(by_head)).flatten(1, 2)[:, None]
        tokens = x[:, None].to(q_in_model.dtype)  # under autocast the queries come in half precision
        means = attention(q_in_model, tokens, tokens, mask=key_mask, scale=1 / math.sqrt(self.head_dim))
        out = means.unflatten(2, q.shape[1:3])[:, 0] @ self.value_global.weight.view(by_head).mT
        bias = self.value_global.bias
        return out if bias is None else out + bias.view(self.num_heads, 1, self.head_dim)

    def _merge(self, out: Tensor, mask: Tensor | None) -> Tensor:
        """The heads' outputs ``(B, H, T, D)`` side by side, zeros at padding, projected: ``(B, T, C)``."""
        joined = out.transpose(1, 2).flatten(2)
        return self.out(joined if mask is None else joined.masked_fill(~mask[..., None], 0.0))


def _per_key(mask: Tensor | None) -> Tensor | None:
    """``(B, S)`` in the contract's shape, ``(B, 1, 1, S)``."""
    return None if mask is None else mask[:, None, None]
