"""From a trained model to sentences: greedy search, beam search, and forced decoding of a known target.

The searches work on any model with ``start(source, lengths) -> state`` and
``step(tokens, state) -> (logits, state)``, whose states can ``select(rows)`` and know the ``weights`` of the last step.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attn_core.capture import capture_attention
from attn_core.contract import check_size
from attn_core.data import Batches, Pair, Vocab
from attn_core.seq2seq import State


class Stepper(Protocol):
    """A model that decodes one token at a time."""

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """Read ``source (B, S)`` with ``lengths (B,)``."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``(B, V)`` after ``tokens (B,)``, and the next state."""


class Hypothesis(NamedTuple):
    """One decoded sentence: token ids without <eos>.

    ``log_probability`` (nats) is the model's for the ids, <eos> included where it came; ``attention (T, S)`` holds
    one row per id, or is None for a model without attention; ``finished`` is False where the maximum length cut the
    sentence off before <eos>.
    """

    ids: list[int]
    log_probability: float
    attention: Tensor | None
    finished: bool


class Translation(NamedTuple):
    """A decoded sentence in words; the columns of ``attention`` are the source's words and then its <eos>."""

    words: list[str]
    log_probability: float
    attention: Tensor | None
    finished: bool


@torch.no_grad()
def greedy(model: Stepper, source: Tensor, lengths: Tensor, *, max_length: int) -> list[Hypothesis]:
    """Take the likeliest token at each step, for a whole batch at once.

    Shapes: ``source (B, S)``, ``lengths (B,)``. At most ``max_length`` tokens come, <eos> counted; a sentence that
    needs more is marked unfinished.

    Raises:
        ValueError: ``max_length`` below 1.
    """
    check_size("max_length", max_length)
    state = model.start(source, lengths)
    tokens = torch.full((source.shape[0],), Vocab.BOS, device=source.device)
    running = torch.ones_like(tokens, dtype=torch.bool)
    total = torch.zeros(source.shape[0], device=source.device)
    ids, maps = [], []
    for _ in range(max_length):
        logits, state = model.step(tokens, state)
        scores, tokens = logits.float().log_softmax(-1).max(-1)
        # A finished sentence goes on taking steps with its batch; padding marks what no longer counts.
        tokens = tokens.masked_fill(~running, Vocab.PAD)
        total = total + scores.masked_fill(~running, 0.0)
        ids.append(tokens)
        if state.weights is not None:
            maps.append(state.weights)
        running = running & (tokens != Vocab.EOS)
        if not running.any():
            break
    rows = torch.stack(ids, dim=1).tolist()
    weights = torch.stack(maps, dim=1) if maps else None
    return [_hypothesis(row, float(total[i]), None if weights is None else weights[i]) for i, row in enumerate(rows)]


@torch.no_grad()
def beam(
    model: Stepper,
    source: Tensor,
    lengths: Tensor,
    *,
    max_length: int,
    beam_size: int = 4,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """Keep the ``beam_size`` likeliest beginnings of each sentence; return the best of those that ended.

    Hypotheses are compared by log-probability divided by their length (<eos> counted) to the power of
    ``length_penalty``: 0 compares plain probabilities, which favour short sentences; 1 the mean per token. A sentence
    is searched until no beginning can still overtake its best ended hypothesis, or until ``max_length`` tokens; if
    none has ended by then, the best beginning is returned, marked unfinished. Shapes as ``greedy``.

    Raises:
        ValueError: ``max_length`` or ``beam_size`` below 1, or a negative ``length_penalty``.

    Source: Wu et al. 2016, section 7 (pruning and normalising by length).
    """
    check_size("max_length", max_length)
    check_size("beam_size", beam_size)
    if not (math.isfinite(length_penalty) and length_penalty >= 0):
        raise ValueError(f"length_penalty: expected a finite number of at least 0, got {length_penalty}")
    size, device = source.shape[0], source.device
    state = model.start(source, lengths).select(torch.arange(size, device=device).repeat_interleave(beam_size))
    first_row = torch.arange(size, device=device)[:, None] * beam_size
    tokens = torch.full((size * beam_size,), Vocab.BOS, device=device)
    # All beams of a sentence begin alike, so only the first may speak in the first step.
    scores = torch.full((size, beam_size), -math.inf, device=device)
    scores[:, 0] = 0.0
    ids = torch.empty((size * beam_size, 0), dtype=torch.long, device=device)
    maps: Tensor | None = None
    best: list[tuple[float, Hypothesis] | None] = [None] * size
    for length in range(1, max_length + 1):
        logits, state = model.step(tokens, state)
        logp = logits.float().log_softmax(-1)
        vocab = logp.shape[-1]
        candidates = (scores[..., None] + logp.view(size, beam_size, vocab)).flatten(1)
        # Each beam offers <eos> at most once, so twice as many candidates always leave beam_size that go on.
        top, places = candidates.topk(min(2 * beam_size, candidates.shape[1]), dim=1)
        parents, tokens_2d = first_row + places // vocab, places % vocab
        if state.weights is not None:
            row = state.weights[:, None]
            maps = row if maps is None else torch.cat([maps, row], dim=1)
        ended = tokens_2d == Vocab.EOS
        for i, j in (ended & torch.isfinite(top)).nonzero().tolist():
            # Only among the first beam_size candidates, as if <eos> had taken one of the places.
            if j >= beam_size:
                continue
            value = float(top[i, j]) / length**length_penalty
            if best[i] is None or value > best[i][0]:
                parent = int(parents[i, j])
                weights = None if maps is None else maps[parent]
                best[i] = (value, _hypothesis([*ids[parent].tolist(), Vocab.EOS], float(top[i, j]), weights))
        scores, order = top.masked_fill(ended, -math.inf).topk(beam_size, dim=1)
        rows = parents.gather(1, order).flatten()
        tokens = tokens_2d.gather(1, order).flatten()
        ids = torch.cat([ids[rows], tokens[:, None]], dim=1)
        maps = None if maps is None else maps[rows]
        state = state.select(rows)
        # Log-probabilities only fall, so the longest possible sentence is the most that a beginning can still reach.
        reachable = (scores[:, 0] / max_length**length_penalty).tolist()
        if all(found is not None and found[0] >= bound for found, bound in zip(best, reachable, strict=True)):
            break
    results = []
    for i, found in enumerate(best):
        if found is not None:
            results.append(found[1])
        else:
            first = i * beam_size
            weights = None if maps is None else maps[first]
            results.append(_hypothesis(ids[first].tolist(), float(scores[i, 0]), weights))
    return results


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
        ValueError: no sentence, an empty sentence, or a setting out of range.
    """
    check_size("beam_size", beam_size)
    check_size("batch_size", batch_size)
    if not len(sentences) or not all(isinstance(words, Sequence) and len(words) for words in sentences):
        raise ValueError("sentences: expected at least one sequence of words, and a word in each")
    device = next(model.parameters()).device
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    results: list[Translation | None] = [None] * len(sentences)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        encoded = [torch.tensor([*source_vocab.encode(sentences[i]), Vocab.EOS]) for i in chosen]
        source = pad_sequence(encoded, batch_first=True, padding_value=Vocab.PAD).to(device)
        lengths = torch.tensor([len(row) for row in encoded], device=device)
        with _evaluating(model):
            if beam_size == 1:
                found = greedy(model, source, lengths, max_length=max_length)  # type: ignore[arg-type]
            else:
                found = beam(
                    model,  # type: ignore[arg-type]
                    source,
                    lengths,
                    max_length=max_length,
                    beam_size=beam_size,
                    length_penalty=length_penalty,
                )
        for i, row, hypothesis in zip(chosen, encoded, found, strict=True):
            ids, log_probability, attention, finished = hypothesis
            attention = None if attention is None else attention[:, : len(row)].cpu()
            results[i] = Translation(target_vocab.decode(ids), log_probability, attention, finished)
    return [result for result in results if result is not None]


def forced_attention(
    model: nn.Module, pairs: Sequence[Pair], source_vocab: Vocab, target_vocab: Vocab, *, batch_size: int = 256
) -> list[Tensor]:
    """The attention that a model pays while it is given the true target: one map ``(T, S + 1)`` per pair.

    Row t belongs to target word t; the columns are the source's words and then its <eos>. Weights are averaged over
    the heads of the one attention module that the model is expected to have. This is what ``alignment_error`` scores:
    the true links are known for the true words only.

    Raises:
        ValueError: no pairs, or a model in which not just one module has attention weights to show.
    """
    return [heads.mean(0) for heads in forced_heads(model, pairs, source_vocab, target_vocab, batch_size=batch_size)]


@torch.no_grad()
def forced_heads(
    model: nn.Module, pairs: Sequence[Pair], source_vocab: Vocab, target_vocab: Vocab, *, batch_size: int = 256
) -> list[Tensor]:
    """As ``forced_attention``, each head by itself: one tensor of maps ``(H, T, S + 1)`` per pair."""
    device = next(model.parameters()).device
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))
    results: dict[int, Tensor] = {}
    batches = Batches([pairs[i] for i in order], source_vocab, target_vocab, batch_size=batch_size)
    done = 0
    for batch in batches:
        with _evaluating(model), capture_attention(model) as maps:
            on_device = batch.to(device)
            model(on_device.source, on_device.source_lengths, on_device.target_in)
        if len(maps) != 1:
            raise ValueError(f"model: expected one module with attention weights, got {sorted(maps)}")
        for heads in next(iter(maps.values()))[0].cpu():
            pair = pairs[order[done]]
            results[order[done]] = heads[:, : len(pair.target), : len(pair.source) + 1].clone()
            done += 1
    return [results[i] for i in range(len(pairs))]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the mode it was in afterwards."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)


def _hypothesis(ids: list[int], log_probability: float, weights: Tensor | None) -> Hypothesis:
    finished = Vocab.EOS in ids
    kept = ids[: ids.index(Vocab.EOS)] if finished else ids
    return Hypothesis(kept, log_probability, None if weights is None else weights[: len(kept)], finished)
