"""Induction heads: a model of attention alone, sequences that repeat themselves, and what its heads do about it.

Where a token came before, an induction head looks at the token after that earlier one, so that it can be said again.
Its key must say which token stood before it, and a head of the layer below, that looks one token back, has put that
there: it takes two layers. What a head does is measured by ``previous_token_scores`` and ``induction_scores``, and what
hangs on it by switching it off (``head_off``).
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_size, check_tokens, kind, shown
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary


class AttentionOnly(nn.Module):
    """A decoder of attention alone: an embedding, layers of causal multi-head attention, and the logits.

    Each layer adds what it reads from the normalised stream; there are no feed-forward networks. Rotary positions act
    inside the scores, so the stream itself holds what tokens say and not where they stand.
    ``capture_attention(model)`` calls the layers ``"layers.0"``, ``"layers.1"``, ….

    Raises:
        ValueError: a size below 1, or ``model_dim / num_heads`` no even number; in use, tokens of another kind or
            shape, or outside the vocabulary.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", whose positions act inside the
    scores, too.
    """

    def __init__(self, vocab_size: int, *, model_dim: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        sizes = {"vocab_size": vocab_size, "model_dim": model_dim, "num_heads": num_heads, "num_layers": num_layers}
        for name, size in sizes.items():
            check_size(name, size)
        if model_dim % (2 * num_heads):
            raise ValueError(f"model_dim: expected a multiple of twice the {num_heads} heads, got {model_dim}")
        rotary = Rotary(model_dim // num_heads)  # it holds nothing that learns, and serves all layers
        self.embedding = nn.Embedding(vocab_size, model_dim)
        self.layers = nn.ModuleList(
            MultiHeadAttention(model_dim, num_heads, positions=rotary) for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(model_dim) for _ in range(num_layers))
        self.last_norm = nn.LayerNorm(model_dim)
        self.unembedding = nn.Linear(model_dim, vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, V)``, at each of ``tokens (B, T)`` those of the token after it."""
        check_tokens("tokens", tokens, self.embedding.num_embeddings, axes=2)
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x), causal=True)
        return self.unembedding(self.last_norm(x))


class Repeats(NamedTuple):
    """Random sequences in which one piece comes twice, with the same length in the last two axes of all three.

    ``tokens (B, T)`` are ids. ``first`` and ``second``, boolean ``(B, T)``, are True at the piece's tokens in its two
    occurrences, but for its first token, which nothing announces: these can be foretold in the second occurrence, and
    are pure chance in the first.
    """

    tokens: Tensor
    first: Tensor
    second: Tensor


def draw_repeats(
    batch_size: int, length: int, vocab_size: int, *, piece: tuple[int, int], generator: torch.Generator
) -> Repeats:
    """Sequences of independent, equally likely tokens, in each of which a piece is written once more further on.

    The piece has from ``piece[0]`` to ``piece[1]`` tokens, each length as likely; what is left over of ``length`` is
    cut at two random places into what stands before, between and behind. So the distance from a token back to the one
    it repeats differs from sequence to sequence, and no fixed distance serves.

    Everything is drawn from ``generator``, on its device.

    Raises:
        ValueError: a size below 1, a ``piece`` that is not 2 ≤ shortest ≤ longest ≤ length / 2, or no generator.

    Source: after the repeated random sequences of Olsson et al. 2022, "In-context Learning and Induction Heads".
    """
    for name, given in (("batch_size", batch_size), ("length", length), ("vocab_size", vocab_size)):
        check_size(name, given)
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator: expected a torch.Generator, got {kind(generator)}")
    shortest, longest = _checked(piece, length)
    device, rows = generator.device, (batch_size, 1)
    size = torch.randint(shortest, longest + 1, rows, generator=generator, device=device)
    cuts = torch.rand(batch_size, 2, generator=generator, device=device) * (length - 2 * size + 1)
    before, upto = cuts.long().sort(1).values.split(1, 1)
    again = upto + size
    fresh = torch.randint(vocab_size, (batch_size, length), generator=generator, device=device)
    places = torch.arange(length, device=device).expand(batch_size, -1)
    copied = (places >= again) & (places < again + size)
    tokens = fresh.gather(1, torch.where(copied, places - again + before, places))
    return Repeats(tokens, (places > before) & (places < before + size), copied & (places > again))


def next_token_losses(logits: Tensor, tokens: Tensor) -> Tensor:
    """The cross-entropy of each token but the first, in nats, given those before it: ``(B, T − 1)``.

    Shapes: ``logits (B, T, V)`` of ``tokens (B, T)``. Column t is the loss of token t + 1.

    Raises:
        ValueError: shapes that do not go together, or fewer than two tokens.
    """
    for name, given in (("logits", logits), ("tokens", tokens)):
        if not isinstance(given, Tensor):
            raise ValueError(f"{name}: expected a tensor, got {kind(given)}")
    if logits.dim() != 3 or tokens.shape != logits.shape[:2] or tokens.shape[1] < 2:
        wanted = f"shape {tuple(logits.shape[:2])}, as logits, with two tokens at least"
        raise ValueError(f"tokens: expected {wanted}, got {tuple(tokens.shape)}")
    flat = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return flat.view(tokens.shape[0], -1)


def occurrence_losses(losses: Tensor, repeats: Repeats) -> tuple[float, float]:
    """The mean loss, in nats, of the repeated tokens in their first and in their second occurrence.

    The second minus the first is an in-context learning score: how much better a model foretells the same tokens for
    what it has read before.

    Shapes: ``losses (B, T − 1)`` as ``next_token_losses`` gives them, of ``repeats.tokens (B, T)``.

    Raises:
        ValueError: losses of another shape.

    Source: after Olsson et al. 2022, whose score is the loss of the 500th token of a text minus that of the 50th.
    """
    batch_size, length = repeats.tokens.shape
    if losses.shape != (batch_size, length - 1):
        raise ValueError(f"losses: expected shape {(batch_size, length - 1)}, got {tuple(losses.shape)}")
    return losses[repeats.first[:, 1:]].mean().item(), losses[repeats.second[:, 1:]].mean().item()


@torch.no_grad()
def best_losses(tokens: Tensor, vocab_size: int, *, piece: tuple[int, int]) -> Tensor:
    """The losses ``(B, T − 1)`` of the best reader there can be of ``draw_repeats``, in nats: the floor for any model.

    It knows how the sequences were drawn, and weighs every length and place of the piece by Bayes' rule. A fresh token
    costs it about log V. A repeated one costs little, but not nothing: that a token came before may be chance, and the
    repetition may be over.

    Shapes: ``tokens (B, T)``. Memory grows with B and with the fourth power of T.

    Raises:
        ValueError: a ``piece`` as ``draw_repeats`` refuses, or tokens that it cannot have drawn.
    """
    check_tokens("tokens", tokens, vocab_size, axes=2)
    length = tokens.shape[1]
    shortest, longest = _checked(piece, length)
    sources, chances = [], []
    places = torch.arange(length, device=tokens.device)
    for size in range(shortest, longest + 1):
        cuts = length - 2 * size + 1  # places to cut at; two different ones come in either order
        for before in range(cuts):
            for upto in range(before, cuts):
                copied = (places >= upto + size) & (places < upto + 2 * size)
                sources.append(torch.where(copied, places - upto - size + before, places))
                chances.append((1 + (before < upto)) / cuts**2)
    of = torch.stack(sources)[:, None].expand(-1, len(tokens), -1)  # hypothesis, row, place
    fresh = of == places
    same = tokens.expand(len(of), -1, -1).gather(2, of) == tokens
    each = torch.where(fresh, -math.log(vocab_size), torch.where(same, 0.0, -math.inf)).double()
    prior = torch.tensor(chances, dtype=torch.float64, device=tokens.device).log()
    upto_here = (prior[:, None, None] + each.cumsum(2)).logsumexp(0)
    if not bool(upto_here.isfinite().all()):
        raise ValueError("tokens: expected sequences that draw_repeats can draw, with pieces of these lengths")
    return -upto_here.diff(dim=1).float()


def previous_token_scores(weights: Tensor) -> Tensor:
    """The mean weight of each head, from 0 to 1, on the token before the one that asks: ``(H,)``.

    Shapes: ``weights (B, H, T, T)``, query by key. The first token, before which there is none, is left out.

    Raises:
        ValueError: weights of other axes, not square, or of fewer than two tokens.

    Source: Olsson et al. 2022.
    """
    _check_square(weights)
    return weights.diagonal(-1, -2, -1).mean((0, 2))


def induction_scores(weights: Tensor, tokens: Tensor) -> Tensor:
    """The mean weight of each head, from 0 to 1, on what followed the asking token when it came before: ``(H,)``.

    Taken over the tokens that came before in their sequence; where one came several times, the weights on all of the
    tokens that followed it are added. Olsson et al. call this prefix matching.

    Shapes: ``weights (B, H, T, T)``, query by key, of ``tokens (B, T)``.

    Raises:
        ValueError: weights as in ``previous_token_scores``, tokens of another shape, or none that came before.

    Source: Olsson et al. 2022.
    """
    _check_square(weights)
    if not isinstance(tokens, Tensor) or tokens.shape != (weights.shape[0], weights.shape[2]):
        wanted = (weights.shape[0], weights.shape[2])
        raise ValueError(f"tokens: expected shape {wanted}, to go with weights, got {kind(tokens)}")
    came_before = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    asking = came_before.any(-1)
    if not bool(asking.any()):
        raise ValueError("tokens: expected some that came before in their sequence, got none")
    followed = functional.pad(came_before[:, :, :-1], (1, 0))  # key s follows key s − 1
    on_followers = (weights * followed[:, None]).sum(-1)
    return (on_followers * asking[:, None]).sum((0, 2)) / asking.sum()


@contextmanager
def head_off(layer: MultiHeadAttention, head: int) -> Iterator[None]:
    """Inside, one head of ``layer`` adds nothing: its columns of the output projection are zero.

    Its weights are computed and captured as ever; the projection's bias, which belongs to no head, stays. Afterwards
    the columns are what they were.

    Raises:
        ValueError: ``layer`` is of another kind, or ``head`` is not one of its heads.
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
