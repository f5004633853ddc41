"""Looking into a pretrained decoder: its maps, its heads by what they attend to, and its heads cut out.

A head is a pair (layer, head), counted from 0. ``cut_heads`` replaces what some heads add, ``duplicate_scores`` and
``first_token_scores`` say what heads attend to, beside the scores of ``attn_book.induction``; ``rotary_parts`` divides
a layer's scores among its rotary frequencies.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attn_core import capture_attention
from attn_core.contract import check_tokens, kind
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary

Head = tuple[int, int]


def attentions(model: nn.Module) -> list[MultiHeadAttention]:
    """The self-attention of each layer of a model with a ``stack``.

    Raises:
        ValueError: if the model has no such layers.
    """
    layers = getattr(getattr(model, "stack", None), "layers", ())
    if not layers:
        raise ValueError(f"model: expected one with layers in model.stack, got {kind(model)}")
    return [layer.attention for layer in layers]


@torch.no_grad()
def all_maps(model: nn.Module, *inputs: Tensor) -> Tensor:
    """The attention weights of every head while the model reads ``inputs``: ``(L, B, H, T, T)``, query by key."""
    with capture_attention(model) as maps:
        model(*inputs)
    return torch.stack([weights for (weights,) in maps.values()])


@contextmanager
def cut_heads(model: nn.Module, heads: Iterable[Head], means: Tensor | None = None) -> Iterator[None]:
    """A context in which the outputs of some heads are zero, or their means ``(L, H, D)`` at every token.

    The heads' weights are computed and captured as ever.

    Raises:
        ValueError: if there is no such head, or ``means`` have another shape.
    """
    layers = attentions(model)
    first = layers[0]
    shape = (len(layers), first.num_heads, first.head_dim)
    if means is not None and means.shape != shape:
        raise ValueError(f"means: expected shape {shape}, got {tuple(means.shape)}")
    chosen = list(heads)
    for number, head in chosen:
        if not (0 <= number < shape[0] and 0 <= head < shape[1]):
            raise ValueError(f"heads: expected (layer, head) below {shape[:2]}, got {(number, head)}")

    def replace(number: int, ones: list[int]) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            mixed = inputs[0].unflatten(-1, shape[1:]).clone()
            mixed[..., ones, :] = 0.0 if means is None else means[number, ones]
            return (mixed.flatten(-2),)

        return layers[number].out.register_forward_pre_hook(hook)

    hooks = [replace(n, [h for layer, h in chosen if layer == n]) for n in {number for number, _ in chosen}]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def head_means(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
    """The mean output ``(L, H, D)`` of each head over the tokens ``(B, T)`` where ``real (B, T)`` is True."""
    layers, found = attentions(model), []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(inputs[0][real].mean(0).view(layers[0].num_heads, -1))

    hooks = [layer.out.register_forward_pre_hook(keep) for layer in layers]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found)


def duplicate_scores(weights: Tensor, tokens: Tensor) -> Tensor:
    """The mean attention weight of each head, from 0 to 1, on earlier occurrences of the query's token: ``(H,)``.

    The mean is over the tokens that occurred before in their sequence.

    Shapes: ``weights (B, H, T, T)``, query by key, of ``tokens (B, T)``.

    Raises:
        ValueError: if the shapes do not match, or no token occurred before.

    Source: Wang et al. 2023, who call such heads duplicate token heads.
    """
    if weights.dim() != 4 or tokens.shape != (weights.shape[0], weights.shape[2]):
        raise ValueError(f"tokens: expected (B, T) of weights (B, H, T, T), got {kind(tokens)}")
    earlier = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    repeated = earlier.any(-1)
    if not bool(repeated.any()):
        raise ValueError("tokens: expected some that came before in their sequence, got none")
    return ((weights * earlier[:, None]).sum(-1) * repeated[:, None]).sum((0, 2)) / repeated.sum()


def first_token_scores(weights: Tensor, real: Tensor | None = None) -> Tensor:
    """The mean attention weight of each head, from 0 to 1, on the first token: ``(H,)``.

    The mean is over all queries after the first token, or over those where ``real (B, T)`` is True.

    Shapes: ``weights (B, H, T, T)``, query by key.

    Raises:
        ValueError: if ``weights`` have other axes or fewer than two tokens.
    """
    if weights.dim() != 4 or weights.shape[2] < 2:
        raise ValueError(f"weights: expected shape (B, H, T, T) with two tokens at least, got {kind(weights)}")
    asked = torch.ones_like(weights[:, 0, :, 0], dtype=torch.bool) if real is None else real.clone()
    asked[:, 0] = False
    return (weights[..., 0] * asked[:, None]).sum((0, 2)) / asked.sum()


def layer_input(model: Any, tokens: Tensor, number: int) -> Tensor:
    """What the self-attention of layer ``number`` of a pre-norm decoder reads: normalised vectors ``(B, T, C)``."""
    check_tokens("tokens", tokens, model.config.vocab_size, axes=2)
    x = model.embedding(tokens)
    for layer in model.stack.layers[:number]:
        x = layer(x, causal=True)
    return model.stack.layers[number].add_attention.norm(x)


@torch.no_grad()
def rotary_parts(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """The scaled scores of a layer with ``Rotary`` positions, divided among the frequencies: ``(P, B, H, T, T)``.

    ``x (B, T, C)`` is what the layer reads. Entries 2j and 2j + 1 of a head turn at one frequency, and the score is the
    sum over j of what these two entries contribute to the product. The sum over the first axis is the score before
    the causal mask.

    Raises:
        ValueError: if the layer's positions are not ``Rotary``.
    """
    if not isinstance(layer.positions, Rotary):
        raise ValueError(f"layer: expected one with Rotary positions, got {kind(layer.positions)}")
    places = torch.arange(x.shape[1])
    split = (-1, layer.head_dim)
    q = layer.positions.rotate(layer.query(x).unflatten(-1, split).transpose(1, 2), places)
    k = layer.positions.rotate(layer.key(x).unflatten(-1, split).transpose(1, 2), places)
    k = k.repeat_interleave(layer.num_heads // layer.num_kv_heads, 1)
    q, k = q.unflatten(-1, (-1, 2)), k.unflatten(-1, (-1, 2))
    return torch.einsum("bhtpe,bhspe->pbhts", q, k) / layer.head_dim**0.5


def variance_shares(parts: Tensor) -> Tensor:
    """The share of each frequency in the variance of a head's scores among the visible keys: ``(P, H)``.

    A frequency's share is the covariance of its part with the whole score, over the score's variance, both summed over
    the queries. The shares of a head sum to one; a share is negative if the part works against the score.

    Shapes: ``parts (P, B, H, T, T)``, as ``rotary_parts`` gives them.
    """
    visible = torch.ones(parts.shape[-2:], dtype=torch.bool).tril()
    count = visible.sum(-1, keepdim=True)

    def centred(x: Tensor) -> Tensor:
        x = x * visible
        return (x - x.sum(-1, keepdim=True) / count) * visible

    whole = centred(parts.sum(0))
    return torch.stack([(centred(p) * whole).sum((0, 2, 3)) for p in parts]) / (whole**2).sum((0, 2, 3))
