"""From sentences in words to sentences in words."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attn_book.data import Vocab
from attn_book.data.batches import pad
from attn_core.contract import check_integer, shown
from attn_core.decode import beam, greedy


class Translation(NamedTuple):
    """A decoded sentence in words; the columns of ``attention`` are the source's words and then its <eos>."""

    words: list[str]
    log_probability: float
    attention: Tensor | None
    finished: bool


def translate(
    model: nn.Module,
    sentences: Sequence[Sequence[str]],
    source_vocab: Vocab,
    target_vocab: Vocab,
    *,
    beam_size: int = 1,
    length_penalty: float = 1.0,
    max_length: int = 100,
    batch_size: int = 256,
) -> list[Translation]:
    """Translate tokenised sentences, greedily (``beam_size=1``) or by beam search, in the order given.

    Sentences of like length share a batch. ``max_length`` counts <eos>. The model is run in evaluation mode and
    left in the mode it was in.

    Raises:
        ValueError: if a sentence is empty or not a sequence of words, or a setting is out of range.
    """
    check_integer("beam_size", beam_size)
    check_integer("batch_size", batch_size)
    check_integer("max_length", max_length)
    for sentence in sentences if isinstance(sentences, Sequence) else [sentences]:
        listed = isinstance(sentence, Sequence) and not isinstance(sentence, str) and len(sentence)
        if not listed or not all(isinstance(word, str) and word for word in sentence):
            raise ValueError(f"sentences: expected words, at least one, in each, got {shown(sentence)}")
    device = next(model.parameters()).device
    search: Any = partial(beam, beam_size=beam_size, length_penalty=length_penalty) if beam_size > 1 else greedy
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    results: list[Translation | None] = [None] * len(sentences)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        encoded = [torch.tensor([*source_vocab.encode(sentences[i]), source_vocab.EOS]) for i in chosen]
        source = pad(encoded).to(device)
        lengths = torch.tensor([len(row) for row in encoded], device=device)
        limits = {"max_length": max_length, "begin_id": target_vocab.BOS, "end_ids": (target_vocab.EOS,)}
        hypotheses = search(model, source, lengths, **limits)
        for i, row, hypothesis in zip(chosen, encoded, hypotheses, strict=True):
            ids, log_probability, attention, finished = hypothesis
            attention = None if attention is None else attention[:, : len(row)].cpu()
            results[i] = Translation(target_vocab.decode(ids), log_probability, attention, finished)
    return [result for result in results if result is not None]
