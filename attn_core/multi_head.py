"""Multi-head attention: projections, heads, grouped key-value heads, positions, a cache; around any mechanism."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attn_core.cache import Cache, KVCache, rollback_on_error
from attn_core.capture import is_captured, record
from attn_core.contract import (
    check_bias,
    check_factory,
    check_flags,
    check_integer,
    check_mechanism,
    kind,
    settings,
    shown,
    with_weights,
)
from attn_core.mechanisms.dense import Dense
from attn_core.positions import RelativePositions, following
from attn_core.projections import check_vectors, head_size, initialise, like_projected, split_heads


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on its own learned projections of queries, keys and values.

    ``num_heads`` heads of size ``head_dim`` (``model_dim / num_heads`` by default) read ``num_kv_heads`` key-value
    heads: ``num_heads`` by default, one in multi-query attention, a divisor of ``num_heads`` in grouped-query
    attention. Keys have ``key_dim`` entries (by default ``model_dim``), values ``value_dim`` (by default ``key_dim``).
    ``bias`` is that of all projections. With ``share_query_key`` queries and keys have the same projection, and in
    self-attention without a cache they are one tensor, as ``LSHAttention`` needs.

    ``positions`` makes the scores depend on positions: ``Rotary(head_dim)`` or ``ALiBi(num_heads)``. ``mechanism`` is
    any callable of the contract (``attn_core.__doc__``), ``Dense()`` by default; one that learns belongs to one layer.

    ``query_key_norm`` is called with ``head_dim``, once for a norm of the queries and once for one of the keys, which
    act before the positions. With ``gate`` the heads' outputs are multiplied by a sigmoid of a projection of the
    queries' vectors, before the output projection.

    Raises:
        ValueError: if a size is below 1, the heads do not divide, or an argument is of another kind.

    Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (multi-query); Ainslie et al. 2023 (grouped-query); Henry
    et al. 2020 and Dehghani et al. 2023 (query_key_norm); Qiu et al. 2025 (gate). The weights start after Glorot and
    Bengio 2010, the biases at zero.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        share_query_key: bool = False,
        query_key_norm: Callable[[int], nn.Module] | None = None,
        gate: bool = False,
        positions: RelativePositions | None = None,
        mechanism: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        check_flags(bias=bias, share_query_key=share_query_key, gate=gate)
        head_dim = head_size(model_dim, num_heads, head_dim)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        key_dim = model_dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        for name, size in {"num_kv_heads": num_kv_heads, "key_dim": key_dim, "value_dim": value_dim}.items():
            check_integer(name, size)
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads: expected a number that divides num_heads {num_heads}, got {num_kv_heads}")
        if share_query_key and (num_kv_heads, key_dim) != (num_heads, model_dim):
            expected = f"num_kv_heads {num_heads} and key_dim {model_dim}, those of the queries"
            raise ValueError(f"share_query_key: expected {expected}, got {num_kv_heads} and {key_dim}")
        self.model_dim, self.key_dim, self.value_dim = model_dim, key_dim, value_dim
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.query = nn.Linear(model_dim, num_heads * head_dim, bias=bias)
        self.key = self.query if share_query_key else nn.Linear(key_dim, num_kv_heads * head_dim, bias=bias)
        self.value = nn.Linear(value_dim, num_kv_heads * head_dim, bias=bias)
        self.out = nn.Linear(num_heads * head_dim, model_dim, bias=bias)
        self.gate = nn.Linear(model_dim, num_heads * head_dim, bias=bias) if gate else None
        self.query_norm: nn.Module | None = None
        self.key_norm: nn.Module | None = None
        if query_key_norm is not None:
            check_factory("query_key_norm", query_key_norm)
            self.query_norm = query_key_norm(head_dim)
            self.key_norm = self.query_norm if share_query_key else query_key_norm(head_dim)
        if positions is not None and (not hasattr(positions, "rotate") or isinstance(positions, type)):
            raise ValueError(f"positions: expected some inside the scores, as Rotary or ALiBi, got {kind(positions)}")
        self.positions = positions
        self.mechanism = Dense() if mechanism is None else mechanism
        check_mechanism(self.mechanism)
        initialise(self.query, self.key, self.value, self.out, *([] if self.gate is None else [self.gate]))

    def forward(
        self,
        queries: Tensor,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Attend from ``queries`` to ``keys`` and ``values``; without keys to the queries themselves.

        Shapes: ``queries (B, T, model_dim)``, ``keys (B, S, key_dim)``, ``values (B, S, value_dim)``, by default the
        keys; ``mask`` (True = may attend) and ``bias`` broadcast to ``(B, H, T, S)``. Returns ``(B, T, model_dim)``.

        With a ``cache``, the queries are each row's next T tokens: they are added to what is cached and attend to all
        of it, causally. Where rows differ, ``lengths (B,)`` says how many of the T tokens are true; the outputs of the
        others have no meaning. In ``mask`` and ``bias``, S is then the cache's ``longest`` after this call. However a
        sequence is cut into calls, the outputs are the same. A call that fails leaves the cache as it was.

        Raises:
            ValueError: if an input has another size or kind; if the cache is full, of other sizes, or given with keys
                or without ``causal=True``; if ``lengths`` come without a cache, or differ where the mechanism is
                ``aligned_only``.
        """
        check_vectors("queries", queries, self.model_dim, self.query)
        if cache is None:
            if lengths is not None:
                raise ValueError("lengths: expected a cache with them; without one, masks.padding(lengths, size) hides")
            k, v = self.project_kv(queries if keys is None else keys, values)
            shared = keys is None and self.key is self.query
            q = k if shared else self._project(queries, self.query, self.query_norm, k.shape[2] - queries.shape[1])
            return self._merge(self.attend_heads(q, k, v, mask=mask, bias=bias, causal=causal), queries)
        if keys is not None or values is not None or not causal:
            raise ValueError("cache: expected causal=True and no keys or values of their own: it continues a sequence")
        with rollback_on_error([cache]):  # a call that failed can be made again
            before = cache.before
            k = self._project(queries, self.key, self.key_norm, before)
            v = split_heads(self.value(queries), self.head_dim)
            q = k if self.key is self.query else self._project(queries, self.query, self.query_norm, before)
            return self._merge(cache.attend(self, q, k, v, mask=mask, bias=bias, lengths=lengths), queries)

    def project_kv(self, keys: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Project keys and values once, for queries that come later: ``(B, G, S, D)`` each.

        Shapes: ``keys (B, S, key_dim)``; ``values (B, S, value_dim)``, by default the keys. Raises as ``forward``.
        """
        check_vectors("keys", keys, self.key_dim, self.key)
        values = keys if values is None else values
        check_vectors("values", values, self.value_dim, self.value)
        if values.shape[:2] != keys.shape[:2]:
            raise ValueError(f"values: expected leading axes {(*keys.shape[:2],)}, as keys, got {tuple(values.shape)}")
        return self._project(keys, self.key, self.key_norm, 0), split_heads(self.value(values), self.head_dim)

    def attend(self, queries: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Attend from ``queries (B, T, model_dim)`` to keys and values that ``project_kv`` gave: ``(B, T, model_dim)``.

        ``options`` are ``mask``, ``bias`` and ``causal``. Query i stands at position S − T + i, as in the contract's
        causal mask. Raises as ``forward``.
        """
        check_vectors("queries", queries, self.model_dim, self.query)
        q = self._project(queries, self.query, self.query_norm, k.shape[2] - queries.shape[1])
        return self._merge(self.attend_heads(q, k, v, **options), queries)

    def attend_with_weights(
        self, queries: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """``attend`` by the mechanism's explicit path: the output, and the weights ``(B, H, T, S)`` of each head."""
        check_vectors("queries", queries, self.model_dim, self.query)
        q = self._project(queries, self.query, self.query_norm, k.shape[2] - queries.shape[1])
        out, weights = with_weights(self.mechanism, q, k, v, bias=self._with_positions(q, k, bias), **options)
        record(self, weights)
        return self._merge(out, queries), weights

    def attend_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        bias: Tensor | None = None,
        before: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """The heads' outputs ``(B, H, T, D)``, from q, k and v in heads; a cache calls it with all keys and values.

        ``before (B,)`` is the number of keys before each row's first query, by default S − T in each row.
        """
        bias = self._with_positions(q, k, bias, before)
        if is_captured(self):
            out, weights = with_weights(self.mechanism, q, k, v, bias=bias, **options)
            record(self, weights)
            return out
        return self.mechanism(q, k, v, bias=bias, **options)

    def new_cache(self, batch_size: int, capacity: int) -> KVCache:
        """An empty cache for this layer, with room for ``capacity`` tokens in each of ``batch_size`` rows.

        It passes no gradient back: call the layer inside ``torch.no_grad()``.
        """
        return KVCache(batch_size, self.num_kv_heads, capacity, self.head_dim, **like_projected(self))

    extra_repr = settings

    def _project(self, x: Tensor, projection: nn.Module, norm: nn.Module | None, before: int | Tensor) -> Tensor:
        """Queries or keys ``(B, heads, n, D)`` of vectors ``x (B, n, C)``, normed and rotated."""
        heads = split_heads(projection(x), self.head_dim)
        heads = heads if norm is None else norm(heads).to(heads.dtype)  # autocast gives float32 on CUDA
        return heads if self.positions is None else self.positions.rotate(heads, following(before, heads))

    def _with_positions(self, q: Tensor, k: Tensor, bias: Tensor | None, before: Tensor | None = None) -> Tensor | None:
        """The bias plus that of the positions."""
        if self.positions is None or type(self.positions).bias is RelativePositions.bias:
            return bias
        first = k.shape[2] - q.shape[2] if before is None else before
        added = self.positions.bias(following(first, q), torch.arange(k.shape[2], device=k.device))
        if added is None:
            return bias
        if added.shape[-3] != self.num_heads:
            raise ValueError(f"positions: expected some for {self.num_heads} heads, got {shown(self.positions)}")
        if bias is None:
            return added
        check_bias(bias, (*q.shape[:3], k.shape[2]), k.device)
        return bias + added

    def _merge(self, out: Tensor, queries: Tensor) -> Tensor:
        """The heads' outputs ``(B, H, T, D)`` side by side, gated and projected: ``(B, T, model_dim)``."""
        out = out.transpose(1, 2).flatten(2)
        return self.out(out if self.gate is None else out * torch.sigmoid(self.gate(queries)))
