"""Induction heads: an attention-only model, sequences with repetitions, and measurements of the heads.

If the current token occurred before, an induction head attends to the token after that earlier occurrence, so that the
model can predict it again. For this, a key must say which token came before it, and a head of the layer below, which
attends one token back, has to write this there; so two layers are needed. ``previous_token_scores`` and
``induction_scores`` measure what a head attends to, and ``head_off`` shows what depends on it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_integer, check_tokens, kind, shown
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary


class AttentionOnly(nn.Module):
    """An attention-only decoder: an embedding, layers of causal multi-head attention, and the logits.

    Each layer has layer normalisation before the attention and a residual connection around it; there are no
    feed-forward networks. Rotary positions act inside the scores, so the residual stream contains no positions.
    ``capture_attention(model)`` calls the layers ``"layers.0"``, ``"layers.1"``, ….

    Raises:
        ValueError: if a size is below 1 or ``model_dim / num_heads`` is not even; when called, if ``tokens`` are not
            integers ``(B, T)`` within the vocabulary.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", whose positions also act inside
    the scores.
    """

    def __init__(self, vocab_size: int, *, model_dim: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        sizes = {"vocab_size": vocab_size, "model_dim": model_dim, "num_heads": num_heads, "num_layers": num_layers}
        for name, size in sizes.items():
            check_integer(name, size)
        if model_dim % (2 * num_heads):
            raise ValueError(f"model_dim: expected a multiple of twice the {num_heads} heads, got {model_dim}")
        rotary = Rotary(model_dim // num_heads)  # it has no parameters, so all layers share it
        self.embedding = nn.Embedding(vocab_size, model_dim)
        self.layers = nn.ModuleList(
            MultiHeadAttention(model_dim, num_heads, positions=rotary) for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(model_dim) for _ in range(num_layers))
        self.last_norm = nn.LayerNorm(model_dim)
        self.unembedding = nn.Linear(model_dim, vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` of the next token at each of ``tokens (B, T)``."""
        check_tokens("tokens", tokens, self.embedding.num_embeddings, axes=2)
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x), causal=True)
        return self.unembedding(self.last_norm(x))


class Repeats(NamedTuple):
    """Random sequences in each of which one piece occurs twice.

    ``tokens (B, T)`` are ids. ``first`` and ``second``, boolean ``(B, T)``, are True at the piece's tokens in its first
    and its second occurrence, except at the first token of the piece, which cannot be predicted in either. The others
    can be predicted in the second occurrence, and only at chance level in the first.
    """

    tokens: Tensor
    first: Tensor
    second: Tensor


def draw_repeats(
    batch_size: int, length: int, vocab_size: int, *, piece: tuple[int, int], generator: torch.Generator
) -> Repeats:
    """Draw sequences of independent, equally likely tokens, in each of which a piece is repeated further on.

    The piece has from ``piece[0]`` to ``piece[1]`` tokens, with all lengths equally likely. The rest of ``length`` is
    cut at two random positions into the parts before, between and after the two occurrences. The distance from a token
    back to the one that it repeats therefore differs between sequences, and no fixed distance is enough to copy it.

    Everything is drawn from ``generator``, on its device.

    Raises:
        ValueError: if a size is below 1, ``piece`` does not have 2 ≤ shortest ≤ longest ≤ length / 2, or ``generator``
            is not a ``torch.Generator``.

    Source: after the repeated random sequences of Olsson et al. 2022, "In-context Learning and Induction Heads".
    """
    for name, number in (("batch_size", batch_size), ("length", length), ("vocab_size", vocab_size)):
        check_integer(name, number)
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator: expected a torch.Generator, got {kind(generator)}")
    shortest, longest = _checked(piece, length)
    device, rows = generator.device, (batch_size, 1)
    size = torch.randint(shortest, longest + 1, rows, generator=generator, device=device)
    cuts = torch.rand(batch_size, 2, generator=generator, device=device) * (length - 2 * size + 1)
    before, upto = cuts.long().sort(1).values.split(1, 1)
    again = upto + size
    fresh = torch.randint(vocab_size, (batch_size, length), generator=generator, device=device)
    positions = torch.arange(length, device=device).expand(batch_size, -1)
    copied = (positions >= again) & (positions < again + size)
    tokens = fresh.gather(1, torch.where(copied, positions - again + before, positions))
    return Repeats(tokens, (positions > before) & (positions < before + size), copied & (positions > again))


def next_token_losses(logits: Tensor, tokens: Tensor) -> Tensor:
    """The cross-entropy, in nats, of each token after the first, given those before it: ``(B, T − 1)``.

    Shapes: ``logits (B, T, V)`` of ``tokens (B, T)``. Column t is the loss of token t + 1.

    Raises:
        ValueError: if the shapes do not match, or there are fewer than two tokens.
    """
    for name, tensor in (("logits", logits), ("tokens", tokens)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name}: expected a tensor, got {kind(tensor)}")
    if logits.dim() != 3 or tokens.shape != logits.shape[:2] or tokens.shape[1] < 2:
        shape = tuple(logits.shape[:2])
        raise ValueError(
            f"tokens: expected shape {shape}, as logits, with two tokens at least, got {tuple(tokens.shape)}"
        )
    flat = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return flat.view(tokens.shape[0], -1)


def occurrence_losses(losses: Tensor, repeats: Repeats) -> tuple[float, float]:
    """The mean loss, in nats, of the repeated tokens in their first and in their second occurrence.

    The second minus the first is an in-context learning score: how much better a model predicts the same tokens
    because it has read them before.

    Shapes: ``losses (B, T − 1)`` as ``next_token_losses`` gives them, of ``repeats.tokens (B, T)``.

    Raises:
        ValueError: if ``losses`` has another shape.

    Source: after Olsson et al. 2022, whose score is the loss of the 500th token of a text minus that of the 50th.
    """
    batch_size, length = repeats.tokens.shape
    if losses.shape != (batch_size, length - 1):
        raise ValueError(f"losses: expected shape {(batch_size, length - 1)}, got {tuple(losses.shape)}")
    return losses[repeats.first[:, 1:]].mean().item(), losses[repeats.second[:, 1:]].mean().item()


@torch.no_grad()
def best_losses(tokens: Tensor, vocab_size: int, *, piece: tuple[int, int]) -> Tensor:
    """The losses ``(B, T − 1)``, in nats, of the optimal predictor of ``draw_repeats``, a lower bound for any model.

    The predictor knows how the sequences are drawn, and weights every length and position of the piece by Bayes' rule.
    The loss of a fresh token is about log V. That of a repeated token is small but not zero, because an earlier
    occurrence may be by chance, and the repetition may be over.

    Shapes: ``tokens (B, T)``. Memory grows with B and with the fourth power of T.

    Raises:
        ValueError: if ``draw_repeats`` does not accept ``piece``, or cannot have drawn ``tokens``.
    """
    check_tokens("tokens", tokens, vocab_size, axes=2)
    length = tokens.shape[1]
    shortest, longest = _checked(piece, length)
    sources, chances = [], []
    positions = torch.arange(length, device=tokens.device)
    for size in range(shortest, longest + 1):
        cuts = length - 2 * size + 1  # positions to cut at; two different ones occur in either order
        for before in range(cuts):
            for upto in range(before, cuts):
                copied = (positions >= upto + size) & (positions < upto + 2 * size)
                sources.append(torch.where(copied, positions - upto - size + before, positions))
                chances.append((1 + (before < upto)) / cuts**2)
    of = torch.stack(sources)[:, None].expand(-1, len(tokens), -1)  # hypothesis, row, position
    fresh = of == positions
    same = tokens.expand(len(of), -1, -1).gather(2, of) == tokens
    each = torch.where(fresh, -math.log(vocab_size), torch.where(same, 0.0, -math.inf)).double()
    prior = torch.tensor(chances, dtype=torch.float64, device=tokens.device).log()
    so_far = (prior[:, None, None] + each.cumsum(2)).logsumexp(0)
    if not bool(so_far.isfinite().all()):
        raise ValueError("tokens: expected sequences that draw_repeats can draw, with pieces of these lengths")
    return -so_far.diff(dim=1).float()


def previous_token_scores(weights: Tensor) -> Tensor:
    """The mean attention weight of each head, from 0 to 1, on the token before the query: ``(H,)``.

    Shapes: ``weights (B, H, T, T)``, query by key. The first token, which has none before it, is left out.

    Raises:
        ValueError: if the maps are not square, have other axes, or fewer than two tokens.

    Source: Olsson et al. 2022.
    """
    _check_square(weights)
    return weights.diagonal(-1, -2, -1).mean((0, 2))


def induction_scores(weights: Tensor, tokens: Tensor) -> Tensor:
    """The mean attention weight of each head, from 0 to 1, on the token after an earlier occurrence: ``(H,)``.

    The mean is over the tokens that occurred before in their sequence. If one occurred several times, the weights on
    all the tokens that followed it are added. Olsson et al. call this prefix matching.

    Shapes: ``weights (B, H, T, T)``, query by key, of ``tokens (B, T)``.

    Raises:
        ValueError: if ``weights`` are as ``previous_token_scores`` refuses them, ``tokens`` have another shape, or no
            token occurred before.

    Source: Olsson et al. 2022.
    """
    _check_square(weights)
    if not isinstance(tokens, Tensor) or tokens.shape != (weights.shape[0], weights.shape[2]):
        shape = (weights.shape[0], weights.shape[2])
        raise ValueError(f"tokens: expected shape {shape}, to go with weights, got {kind(tokens)}")
    earlier = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    repeated = earlier.any(-1)
    if not bool(repeated.any()):
        raise ValueError("tokens: expected some that came before in their sequence, got none")
    followed = functional.pad(earlier[:, :, :-1], (1, 0))  # key s follows key s − 1
    on_followers = (weights * followed[:, None]).sum(-1)
    return (on_followers * repeated[:, None]).sum((0, 2)) / repeated.sum()


@contextmanager
def head_off(layer: MultiHeadAttention, head: int) -> Iterator[None]:
    """A context in which one head of ``layer`` has no effect: its columns of the output projection are zero.

    Its attention weights are still computed and captured, and the projection's bias, which belongs to no head, stays.
    Afterwards the columns are restored.

    Raises:
        ValueError: if ``layer`` is not a ``MultiHeadAttention``, or ``head`` is not one of its heads.
    """
    if not isinstance(layer, MultiHeadAttention):
        raise ValueError(f"layer: expected a MultiHeadAttention, got {kind(layer)}")
    if type(head) is not int or not 0 <= head < layer.num_heads:
        raise ValueError(f"head: expected one of the layer's, from 0 to {layer.num_heads - 1}, got {shown(head)}")
    columns = layer.out.weight.detach()[:, head * layer.head_dim : (head + 1) * layer.head_dim]
    kept = columns.clone()
    columns.zero_()
    try:
        yield
    finally:
        columns.copy_(kept)


def _checked(piece: tuple[int, int], length: int) -> tuple[int, int]:
    """The shortest and the longest piece."""
    pair = isinstance(piece, tuple | list) and len(piece) == 2 and all(type(size) is int for size in piece)
    shortest, longest = piece if pair else (0, 0)
    if not 2 <= shortest <= longest <= length / 2:
        raise ValueError(f"piece: expected 2 <= shortest <= longest <= half of length {length}, got {shown(piece)}")
    return shortest, longest


def _check_square(weights: Tensor) -> None:
    square = isinstance(weights, Tensor) and weights.dim() == 4 and weights.shape[2] == weights.shape[3]
    if not square or weights.shape[2] < 2:
        raise ValueError(f"weights: expected shape (B, H, T, T) with two tokens at least, got {kind(weights)}")
