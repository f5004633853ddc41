"""Gated DeltaNet: a layer that replaces self-attention, and whose memory is a matrix of fixed size."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import masks
from attn_core.cache import Cache, RecurrentState
from attn_core.contract import accum_dtype, check_integer, kind, settings
from attn_core.mechanisms.linear import linear_attention
from attn_core.projections import check_vectors, head_size, initialise, like_parameters, split_heads


class GatedDeltaNet(nn.Module):
    """The gated delta rule as a layer: causal, without positions, and with a state instead of keys and values.

    Queries, keys and values come from a projection, a short convolution over each channel's last ``conv_size`` tokens,
    and SiLU; queries and keys have length 1. Each head decays its state by a factor that depends on the token, and
    writes by the delta rule with a rate between 0 and 1; its output is normalised and gated. With
    ``TransformerConfig(attention=…)`` the layers of a model may alternate between this and full attention.

    Raises:
        ValueError: if a size is below 1, or ``num_heads`` does not divide ``model_dim``.

    Source: Yang et al. 2025, section 3.4; how the decays start, Dao and Gu 2024. The other weights start after Glorot
    and Bengio 2010.
    """

    def __init__(self, model_dim: int, num_heads: int, *, conv_size: int = 4) -> None:
        super().__init__()
        head_dim = head_size(model_dim, num_heads)
        check_integer("conv_size", conv_size)
        self.model_dim, self.num_heads, self.head_dim, self.conv_size = model_dim, num_heads, head_dim, conv_size
        channels = 3 * model_dim
        self.query_key_value = nn.Linear(model_dim, channels, bias=False)
        self.conv = nn.Conv1d(channels, channels, conv_size, groups=channels, bias=False)
        self.step, self.rate = nn.Linear(model_dim, num_heads), nn.Linear(model_dim, num_heads)
        self.gate = nn.Linear(model_dim, model_dim, bias=False)
        self.norm = nn.RMSNorm(head_dim, eps=1e-6)
        self.out = nn.Linear(model_dim, model_dim, bias=False)
        initialise(self.query_key_value, self.step, self.rate, self.gate, self.out)
        # A token decays the state by exp(−speed · softplus(step)): at first by a factor from exp(−1.6) to exp(−.001).
        self.log_speed = nn.Parameter(torch.empty(num_heads).uniform_(1.0, 16.0).log())
        steps = torch.empty(num_heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        with torch.no_grad():
            self.step.bias.copy_(steps.expm1().log())  # the inverse of softplus

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Each token of ``x (B, T, model_dim)`` reads from the tokens up to it; returns the same shape.

        ``cache``, one that ``new_cache`` made, and ``lengths`` are those of ``MultiHeadAttention.forward``.

        Raises:
            ValueError: if ``x`` has another size or kind, ``causal`` is not True, a ``mask`` is given (padding comes
                last), the cache is another layer's, or ``lengths`` come without a cache.
        """
        check_vectors("x", x, self.model_dim, self.out)
        if not causal:
            raise ValueError("causal: expected True, since a state holds the tokens before, got False")
        if mask is not None:
            raise ValueError(f"mask: expected None, since nothing in a state can be hidden, got {kind(mask)}")
        if cache is None and lengths is not None:
            raise ValueError("lengths: expected a cache with them; without one, padding after a text changes nothing")
        if cache is not None and not (isinstance(cache, RecurrentState) and cache.layer is self):
            raise ValueError(f"cache: expected one that this layer's new_cache made, got {kind(cache)}")
        tokens = x.shape[1]
        if tokens == 0:
            return x
        state, recent = self._empty(x.shape[0], x) if cache is None else cache.state
        inputs = self.query_key_value(x).mT
        inputs = torch.cat([recent.to(inputs.dtype), inputs], -1)  # (B, channels, conv_size - 1 + T)
        q, k, v = split_heads(functional.silu(self.conv(inputs)).mT, self.head_dim).chunk(3, 1)
        q, k = (functional.normalize(one, dim=-1).to(v.dtype) for one in (q, k))  # autocast gives float32 on CUDA
        dtype = accum_dtype(x)
        step, rate = (layer(x).mT.to(dtype) for layer in (self.step, self.rate))  # (B, H, T)
        decay, rate = self.log_speed.to(dtype).exp()[:, None] * functional.logsigmoid(-step), torch.sigmoid(rate)
        recent = inputs[..., tokens:]
        if lengths is not None:  # padding neither decays the state nor writes into it
            counted = masks.length_mask(lengths, tokens).to(x.device)[:, None]
            decay, rate = decay.where(counted, 0.0), rate.where(counted, 0.0)
            last = lengths.to(x.device)[:, None] + torch.arange(self.conv_size - 1, device=x.device)
            recent = inputs.gather(-1, last[:, None].expand(-1, inputs.shape[1], -1))
        out, state = linear_attention(q, k, v, log_decay=decay, beta=rate, state=state)
        if cache is not None:
            cache.advance((state, recent.to(dtype)), tokens, lengths)
        gate = functional.silu(split_heads(self.gate(x), self.head_dim))
        out = self.norm(out.to(like_parameters(self.norm).dtype))  # under autocast, too
        return self.out((out * gate).transpose(1, 2).flatten(2))

    def new_cache(self, batch_size: int, capacity: int) -> RecurrentState:
        """An empty state: the heads' matrices ``(B, H, D, D)`` and the convolution's last ``conv_size - 1`` inputs.

        It has the same size for any number of tokens, so ``capacity`` is not used.
        """
        return RecurrentState(self, self._empty(batch_size, like_parameters(self)))

    extra_repr = settings

    def _empty(self, batch_size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """No past, in the accumulation dtype."""
        dtype = accum_dtype(like)
        state = like.new_zeros(batch_size, self.num_heads, self.head_dim, self.head_dim, dtype=dtype)
        return state, like.new_zeros(batch_size, 3 * self.model_dim, self.conv_size - 1, dtype=dtype)
