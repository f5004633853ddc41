"""Attention under teacher forcing: what a model attends to while it is given the true target."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attn_book.data import Batches, Pair, Vocab
from attn_core.capture import capture_attention
from attn_core.evaluation import evaluating


def teacher_forced_attention(
    model: nn.Module, pairs: Sequence[Pair], source_vocab: Vocab, target_vocab: Vocab, *, batch_size: int = 256
) -> list[Tensor]:
    """The attention that a model pays while it is given the true target: one map ``(T, S + 1)`` per pair.

    Row t belongs to target word t; the columns are the source's words and then its <eos>. Weights are averaged over
    the heads of the one attention module that the model is expected to have. This is what ``alignment_error`` scores:
    the true links are known for the true words only.

    Raises:
        ValueError: if there are no pairs, or the model does not have exactly one module with attention weights to show.
    """
    return [
        heads.mean(0) for heads in teacher_forced_heads(model, pairs, source_vocab, target_vocab, batch_size=batch_size)
    ]


@torch.no_grad()
def teacher_forced_heads(
    model: nn.Module, pairs: Sequence[Pair], source_vocab: Vocab, target_vocab: Vocab, *, batch_size: int = 256
) -> list[Tensor]:
    """As ``teacher_forced_attention``, each head by itself: one tensor of maps ``(H, T, S + 1)`` per pair."""
    device = next(model.parameters()).device
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))
    results: dict[int, Tensor] = {}
    batches = Batches([pairs[i] for i in order], source_vocab, target_vocab, batch_size=batch_size)
    done = 0
    for batch in batches:
        with evaluating(model), capture_attention(model) as maps:
            on_device = batch.to(device)
            model(on_device.source, on_device.source_lengths, on_device.target_in)
        if len(maps) != 1:
            raise ValueError(f"model: expected one module with attention weights, got {sorted(maps)}")
        for heads in next(iter(maps.values()))[0].cpu():
            pair = pairs[order[done]]
            results[order[done]] = heads[:, : len(pair.target), : len(pair.source) + 1].clone()
            done += 1
    return [results[i] for i in range(len(pairs))]
