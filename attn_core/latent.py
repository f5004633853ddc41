"""Multi-head latent attention: the keys and values of all heads are projected from one short vector a token."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attn_core.cache import Cache, KVCache, rollback_on_error
from attn_core.capture import is_captured, record
from attn_core.contract import check_integer, check_mechanism, settings, with_weights
from attn_core.mechanisms.dense import Dense
from attn_core.positions import Rotary, following
from attn_core.projections import (
    check_vectors,
    head_size,
    initialise,
    is_plain_linear,
    like_parameters,
    like_projected,
    split_heads,
)


class LatentAttention(nn.Module):
    """Multi-head self-attention that caches one latent vector a token instead of the keys and values of all heads.

    A token's latent has ``latent_dim`` entries and is normalised; each head projects it up to a key and a value of
    ``model_dim / num_heads`` entries. A latent knows no position. Therefore each key is extended by a rotary part of
    ``rotary_dim`` entries, which all heads share, and each query by one of its own. With ``bias``, the projections from
    and to vectors of the model have a bias; those from a latent never have one. ``mechanism`` is any of the contract
    that scores by scaled products, ``Dense()`` by default.

    Raises:
        ValueError: if a size is below 1, the heads do not divide, or an argument is of another kind.

    Source: DeepSeek-AI 2024, section 2.1 and appendix C, without the queries' latent; the norm, section 3.1.2. The
    weights start after Glorot and Bengio 2010.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        latent_dim: int,
        rotary_dim: int,
        bias: bool = False,
        mechanism: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        head_dim = head_size(model_dim, num_heads)
        check_integer("latent_dim", latent_dim)
        check_integer("rotary_dim", rotary_dim)
        if rotary_dim % 2:
            raise ValueError(f"rotary_dim: expected an even size, since entries are rotated in pairs, got {rotary_dim}")
        self.model_dim, self.num_heads, self.head_dim = model_dim, num_heads, head_dim
        self.latent_dim, self.rotary_dim = latent_dim, rotary_dim
        self.latent = nn.Sequential(nn.Linear(model_dim, latent_dim, bias=bias), nn.RMSNorm(latent_dim))
        self.rotary_key = nn.Linear(model_dim, rotary_dim, bias=bias)
        self.key, self.value = (nn.Linear(latent_dim, model_dim, bias=False) for _ in range(2))
        self.query = nn.Linear(model_dim, num_heads * (head_dim + rotary_dim), bias=bias)
        self.out = nn.Linear(model_dim, model_dim, bias=bias)
        self.positions = Rotary(rotary_dim)
        initialise(*(module for module in self.modules() if isinstance(module, nn.Linear)))
        self.mechanism = Dense() if mechanism is None else mechanism
        check_mechanism(self.mechanism)

    def forward(
        self,
        x: Tensor,
        *,
        causal: bool = False,
        cache: Cache | None = None,
        lengths: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """Attend from each token of ``x (B, T, model_dim)`` to all of them; returns the same shape.

        ``options`` are ``mask`` and ``bias``. The keywords and the errors are those of ``MultiHeadAttention.forward``.
        """
        check_vectors("x", x, self.model_dim, self.out)
        if cache is None:
            if lengths is not None:
                raise ValueError("lengths: expected a cache with them; without one, masks.padding(lengths, size) hides")
            return self.attend_plain(*self.project(x), causal=causal, **options)
        if not causal:
            raise ValueError("cache: expected causal=True with it, since it continues a sequence, got causal=False")
        with rollback_on_error([cache]):  # a call that failed can be made again
            q, latents = self.project(x, cache.before)
            return cache.attend(self, q, latents, latents[..., :0], lengths=lengths, **options)

    def project(self, x: Tensor, before: int | Tensor = 0) -> tuple[Tensor, Tensor]:
        """The heads' queries ``(B, H, T, D + R)`` and the latents ``(B, 1, T, L + R)`` of ``x (B, T, model_dim)``.

        D is ``head_dim``, L is ``latent_dim``; the last R = ``rotary_dim`` entries of each are the rotary part, rotated
        by the positions that follow ``before`` others, or ``before (B,)``, a number for each row.
        """
        positions = following(before, x)
        sizes = self.head_dim, self.rotary_dim
        content, rotary = split_heads(self.query(x), sum(sizes)).split(sizes, -1)
        q = torch.cat([content, self.positions.rotate(rotary, positions)], -1)
        rotary_key = self.positions.rotate(self.rotary_key(x)[:, None], positions)
        down, norm = self.latent
        latent = norm(down(x).to(like_parameters(self.latent).dtype))  # under autocast, too
        return q, torch.cat([latent[:, None].to(rotary_key.dtype), rotary_key], -1)

    def attend_plain(self, q: Tensor, latents: Tensor, **options: Any) -> Tensor:
        """The plain form: project the latents up to the keys and values of all heads, and attend to these.

        Shapes: ``q`` and ``latents`` as ``project`` gives them, of T and of S tokens; returns ``(B, T, model_dim)``.
        ``options`` are ``mask``, ``bias`` and ``causal`` of the mechanism.
        """
        latent, rotary_key = latents.split((self.latent_dim, self.rotary_dim), -1)
        k, v = (split_heads(up(latent[:, 0]), self.head_dim) for up in (self.key, self.value))
        k = torch.cat([k, rotary_key.expand(-1, self.num_heads, -1, -1)], -1)
        return self._merge(self._weigh(q, k, v, **options))

    def attend_absorbed(self, q: Tensor, latents: Tensor, **options: Any) -> Tensor:
        """The absorbed form: attend to the latents themselves, one key-value head for all heads.

        Shapes and results are those of ``attend_plain``. A score is q · (W c) = (Wᵀ q) · c, and the mean of projected
        values is the projected mean, so the projections from the latents can be applied to the queries and to the
        outputs. Where LoRA or quantisation has replaced a projection, there is no W to read: this is ``attend_plain``.
        """
        if not is_plain_linear(self.key, self.value):
            return self.attend_plain(q, latents, **options)
        up_key, up_value = (up.weight.view(self.num_heads, self.head_dim, -1) for up in (self.key, self.value))
        content, rotary = q.split((self.head_dim, self.rotary_dim), -1)
        q = torch.cat([torch.einsum("bhtd,hdl->bhtl", content, up_key), rotary], -1)
        # As values, the latents keep their rotary part until afterwards: to cut it off here would copy them.
        scale = 1 / math.sqrt(self.head_dim + self.rotary_dim)
        means = self._weigh(q, latents, latents, scale=scale, **options)[..., : self.latent_dim]
        return self._merge(torch.einsum("bhtl,hdl->bhtd", means, up_value))

    def new_cache(self, batch_size: int, capacity: int) -> KVCache:
        """An empty cache as ``MultiHeadAttention`` makes; the latents are its keys, and its values have no entries."""
        return KVCache(batch_size, 1, capacity, self.latent_dim + self.rotary_dim, value_dim=0, **like_projected(self))

    extra_repr = settings

    def attend_heads(self, q: Tensor, k: Tensor, v: Tensor, *, before: Tensor | None = None, **options: Any) -> Tensor:
        """The layer's output in the form that costs less; a cache calls it with all latents as ``k``."""
        # The absorbed form projects no latent, but its products of queries and keys are longer, so it pays for few
        # queries. Both sides count half of the multiplications of one head that the two forms do not share.
        up, longer = self.latent_dim * self.head_dim, self.latent_dim - self.head_dim
        absorb = q.shape[2] * (k.shape[2] * longer + up) < k.shape[2] * up
        return (self.attend_absorbed if absorb else self.attend_plain)(q, k, **options)

    def _weigh(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """The heads' outputs; weights that are captured are recorded."""
        if is_captured(self):
            out, weights = with_weights(self.mechanism, q, k, v, **options)
            record(self, weights)
            return out
        return self.mechanism(q, k, v, **options)

    def _merge(self, out: Tensor) -> Tensor:
        """The heads' outputs ``(B, H, T, D)`` side by side, projected: ``(B, T, model_dim)``."""
        return self.out(out.transpose(1, 2).flatten(2))
