"""Linear attention: keys and values are written into a matrix of fixed size, which the queries read.

Without a softmax, the sum over keys of (q·k) v is q times a matrix S, the sum of the products k vᵀ. S is a state that
each token updates, so a step takes the same time after any number of tokens.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import Call, Mechanism, accum_dtype, contract, kind, without_autocast

CHUNK, CHANNEL_CHUNK = 64, 16
"""Tokens in a chunk at most; the second, if each channel has its own decay: that takes a tensor (chunk, chunk, D)."""


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
    state: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Causal attention without a softmax, in chunks: the output ``(B, H, T, Dv)`` and the state after the last token.

    Each token decays the state ``S (B, G, D, Dv)``, writes its key and value into it, and reads it with its queries:

        S ← exp(log_decay) S,    S ← S + k uᵀ,    out = scale · Sᵀ q,

    where ``u`` is the value ``v``, or with ``beta`` the delta rule's ``beta · (v − Sᵀ k)``. A decay for each head gives
    RetNet; one for each head and token, the state-space dual of Mamba-2; one for each entry of the key as well, gated
    linear attention. ``beta`` and a decay give gated DeltaNet, or with a decay for each entry Kimi delta attention.

    Shapes: ``q (B, H, T, D)``, ``k (B, G, T, D)``, ``v (B, G, T, Dv)``; ``log_decay (B, G, T)`` or ``(B, G, T, D)``,
    at most 0 (below −100, it counts as −100); ``beta (B, G, T)``, from 0 to 1 (or to 2) for keys of length 1;
    ``state``, zeros by default. Sums are kept in float32 at least, and the state is returned in that dtype.

    Without ``beta`` and a decay for each entry, the number of operators does not depend on T.

    Source: Katharopoulos et al. 2020, section 3.4; Sun et al. 2023 (RetNet), eq. 6; Yang et al. 2024 (GLA), section 4;
    Dao and Gu 2024, section 6; Schlag et al. 2021 (delta rule), eq. 24; Yang et al. 2024 (DeltaNet), section 3.2, and
    2025 (gated DeltaNet), section 3.3; Kimi Team 2025, section 3.
    """
    scale, kept, dtype = contract(q, k, v, scale=scale).scale, q.dtype, accum_dtype(q)
    batch, groups, tokens, size = k.shape
    if q.shape[2] != tokens:
        raise ValueError(f"q: expected {tokens} tokens, as k has, got {kind(q)}")
    _check_given("log_decay", log_decay, q, (batch, groups, tokens), (batch, groups, tokens, size))
    _check_given("beta", beta, q, (batch, groups, tokens))
    _check_given("state", state, q, (batch, groups, size, v.shape[3]))
    each = log_decay is not None and log_decay.dim() == 4  # each entry of the key has its own decay
    with without_autocast(q):
        state = k.new_zeros(batch, groups, size, v.shape[3], dtype=dtype) if state is None else state.to(dtype)
        # All chunks are equally long. Tokens that fill up the last have zero keys and no decay, so the state stays.
        chunks = max(1, -(-tokens // (CHANNEL_CHUNK if each else CHUNK)))
        fill = max(1, -(-tokens // chunks)) * chunks - tokens
        q, k, v = (functional.pad(x.to(dtype), (0, 0, 0, fill)).unflatten(2, (chunks, -1)) for x in (q, k, v))
        q = q.unflatten(1, (groups, -1)) * scale  # (B, G, H / G, C, n, D): C chunks of n tokens
        if log_decay is None:
            if beta is None:  # nothing leaves the state
                states = torch.cat((state[:, :, None], k.mT @ v), 2).cumsum(2)
                out = q @ states[:, :, None, :-1] + (q @ k[:, :, None].mT).tril() @ v[:, :, None]
                return out.flatten(1, 2).flatten(2, 3)[:, :, :tokens].to(kept), states[:, :, -1]
            log_decay = torch.zeros_like(beta)
        decay = functional.pad((log_decay if each else log_decay[..., None]).to(dtype), (0, 0, 0, fill))
        # exp(-100) is as good as zero, and in sums with larger exponents the small ones would be rounded away.
        # (clamp gives a gradient with other strides than torch.compile expects.)
        decay = torch.maximum(decay.unflatten(2, (chunks, -1)), decay.new_full((), -100.0))
        grown = decay.cumsum(3)  # from the chunk's beginning up to and with each token
        total = grown[..., -1, :]  # (B, G, C, D or 1)
        until_end = (k * (total[..., None, :] - grown).exp()).mT
        written, erased = v, None
        if beta is not None:
            rate = functional.pad(beta.to(dtype), (0, fill)).unflatten(2, (chunks, -1))[..., None]
            # What a token writes depends on what the earlier ones of its chunk wrote: a triangular system, whose matrix
            # is read below its diagonal alone.
            earlier = rate * _products(k, k, grown)
            right = torch.cat((rate * v, rate * k * grown.exp()), -1)
            solved = torch.linalg.solve_triangular(earlier, right, upper=False, unitriangular=True)
            written, erased = solved.split((v.shape[-1], size), -1)
        if each or erased is not None:
            before, written, last = _in_turn(total, until_end, written, erased, state)
        else:
            before, last = _all_at_once(total[..., 0], until_end @ v, state)
        own = _products(q, k[:, :, None], grown[:, :, None]).tril() @ written[:, :, None]
        out = (q * grown.exp()[:, :, None]) @ before[:, :, None] + own
    return out.flatten(1, 2).flatten(2, 3)[:, :, :tokens].to(kept), last


class LinearAttention(Mechanism):
    """Attention in time linear in the length: the weight of a key is φ(q)·φ(k), divided by the sum of all.

    The features φ(x) = elu(x) + 1 are positive. A mask hides the same keys from all heads and queries
    (``masks.padding``). It takes no bias and no scale: there are no scores to add one to, and a factor cancels.

    Source: Katharopoulos et al. 2020, eqs. 5 to 7.
    """

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The output, and the weights ``(B, H, T, S)``, step by step."""
        self._check(call)
        with without_autocast(call.q):
            q, k, v = call.repeat_kv()
            weights = features(q) @ features(k).mT
            if call.visible is not None:
                weights = weights.masked_fill(~call.visible, 0.0)
            weights = shares(weights, weights.sum(-1, keepdim=True))
            out = weights @ v
        return out.to(call.q.dtype), weights.to(call.q.dtype)

    def attend(self, call: Call) -> Tensor:
        """The output alone: the same to rounding, in time and memory linear in T and S."""
        self._check(call)
        q, k, v, mask, _, causal, _ = call
        with without_autocast(q):
            q, k, v = (x.to(accum_dtype(call.q)) for x in (q, k, v))
            q, k = features(q), features(k)
            if mask is not None:
                k = k.masked_fill(~mask.expand(k.shape[0], 1, 1, k.shape[2]).mT, 0.0)
            v = functional.pad(v, (0, 1), value=1.0)  # the ones sum the weights
            unseen = max(k.shape[2] - q.shape[2], 0) if causal else k.shape[2]  # that all queries see
            state = k[:, :, :unseen].mT @ v[:, :, :unseen]
            if causal:
                empty = max(q.shape[2] - k.shape[2], 0)  # queries before the first key
                k, v = (functional.pad(x[:, :, unseen:], (0, 0, empty, 0)) for x in (k, v))
                read = linear_attention(q, k, v, state=state, scale=1.0)[0]
            else:
                read = (q.unflatten(1, (k.shape[1], -1)) @ state[:, :, None]).flatten(1, 2)
            out = shares(read[..., :-1], read[..., -1:])
        return out.to(call.q.dtype)

    def _check(self, call: Call) -> None:
        call.refuse_pairs()
        if call.scale != 1 / math.sqrt(call.q.shape[3]):
            raise ValueError(f"scale: expected None, since a factor of all weights cancels, got {call.scale}")


def features(x: Tensor) -> Tensor:
    """Positive features of the same shape: elu(x) + 1, without the rounding of a small number beside 1."""
    return torch.where(x > 0, x + 1, x.clamp(max=0.0).exp())


def shares(x: Tensor, total: Tensor) -> Tensor:
    """``x`` divided by ``total``, and zeros where that is zero, whatever the values are."""
    empty = total == 0
    return (x / total.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


def _products(a: Tensor, k: Tensor, grown: Tensor) -> Tensor:
    """``a (…, n, D)`` times the keys ``k (…, n, D)`` of the same chunk, decayed from the key on: ``(…, n, n)``.

    It holds on and below the diagonal, where no exponent is above 0. Above it, where one could overflow, it is 0.
    """
    if grown.shape[-1] == 1:
        return (a @ k.mT) * (grown - grown.mT).clamp(max=0.0).exp()
    between = (grown[..., :, None, :] - grown[..., None, :, :]).clamp(max=0.0).exp()
    return (a[..., :, None, :] * k[..., None, :, :] * between).sum(-1)


def _all_at_once(total: Tensor, sums: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The states before each chunk ``(B, G, C, D, Dv)`` and after the last, from the sum that each chunk adds."""
    sums = torch.cat((state[:, :, None], sums), 2)
    grown = functional.pad(total.cumsum(2), (1, 0))
    kept = (grown[..., :, None] - grown[..., None, :]).clamp(max=0.0).exp().tril()  # of sum j in state i
    before, last = ((part @ sums.flatten(3)).unflatten(3, sums.shape[3:]) for part in kept.tensor_split([-1], dim=2))
    return before, last[:, :, 0]


def _in_turn(
    total: Tensor, until_end: Tensor, own: Tensor, erased: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The states before each chunk, what each token writes, and the state after the last chunk, chunk by chunk."""
    before, written = [], []
    for c in range(own.shape[2]):
        before.append(state)
        written.append(own[:, :, c] if erased is None else own[:, :, c] - erased[:, :, c] @ state)
        state = state * total[:, :, c, :, None].exp() + until_end[:, :, c] @ written[-1]
    return torch.stack(before, 2), torch.stack(written, 2), state


def _check_given(name: str, x: Tensor | None, q: Tensor, *shapes: tuple[int, ...]) -> None:
    """``x`` is None, or floating, of one of these shapes, and on the device of ``q``."""
    if x is None:
        return
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point or x.shape not in shapes:
        raise ValueError(f"{name}: expected a floating tensor {' or '.join(map(str, shapes))}, got {kind(x)}")
    if x.device != q.device:
        raise ValueError(f"{name}: expected device {q.device}, as q's, got {x.device}")
