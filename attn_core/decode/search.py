"""Texts of a model one token at a time, for a whole batch at once: greedily, by drawing, or by beam search."""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attn_core.contract import check_integer, check_integers, check_lengths, check_number, kind, shown, token_ids
from attn_core.decode.pick import BAD_LOGITS, BOS, EOS, Pick, Sampler, argmax, take
from attn_core.evaluation import evaluating
from attn_core.seq2seq import State
from attn_core.transformer import LanguageModel


class Stepper(Protocol):
    """A model that decodes token by token; its states can ``select(rows)`` and know the last step's ``weights``."""

    def init_state(self, source: Tensor, lengths: Tensor) -> State:
        """Read ``source (B, S)`` with ``lengths (B,)``."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``(B, V)`` after ``tokens (B,)``, and the next state."""


class Hypothesis(NamedTuple):
    """One decoded sentence: token ids without the one that ends it, <eos>.

    ``log_probability`` (nats) is the model's for the ids and for <eos>, if it came. ``attention (T, S)`` has one row
    for each id, if the model has attention. ``finished`` is False if the maximum length came before <eos>.
    """

    ids: list[int]
    log_probability: float
    attention: Tensor | None
    finished: bool

    @classmethod
    def of(
        cls, ids: list[int], log_probability: float, weights: Tensor | None, end_ids: Collection[int]
    ) -> "Hypothesis":
        """The ids before the first that ends a sentence, and their rows of ``weights``."""
        if math.isnan(log_probability):
            raise ValueError(BAD_LOGITS)
        length = next((i for i, token in enumerate(ids) if token in end_ids), len(ids))
        return cls(ids[:length], log_probability, None if weights is None else weights[:length], length < len(ids))


def greedy(
    model: Stepper,
    source: Tensor,
    lengths: Tensor,
    *,
    max_length: int,
    begin_id: int = BOS,
    end_ids: Sequence[int] = (EOS,),
) -> list[Hypothesis]:
    """Take the most probable token at each step.

    Shapes: ``source (B, S)``, ``lengths (B,)``. A sentence begins after ``begin_id`` and ends at the first token of
    ``end_ids``. At most ``max_length`` tokens come, that one counted; a sentence that needs more is marked unfinished.
    The model is run in evaluation mode and left in the mode it was in. Raises ``ValueError`` if the logits of a
    sentence that has not ended have no finite greatest one, as when one is NaN.
    """
    return sample(model, source, lengths, max_length=max_length, pick=argmax, begin_id=begin_id, end_ids=end_ids)


@torch.no_grad()
def sample(
    model: Stepper,
    source: Tensor,
    lengths: Tensor,
    *,
    max_length: int,
    pick: Pick | None = None,
    begin_id: int = BOS,
    end_ids: Sequence[int] = (EOS,),
) -> list[Hypothesis]:
    """``greedy``, but at each step with the token that ``pick`` takes, by default from the model's own distribution.

    ``log_probability`` is always the model's, not that of a distribution which a sampler has sharpened or cut.
    """
    end_ids = _check(source, lengths, max_length, begin_id, end_ids)
    pick = Sampler() if pick is None else pick
    ends = torch.tensor(end_ids, dtype=torch.long, device=source.device)
    tokens = torch.full((len(source),), begin_id, device=source.device)
    running = torch.ones_like(tokens, dtype=torch.bool)
    total = torch.zeros(len(source), device=source.device)
    ids, maps, left = [], [], [True]
    with evaluating(model):
        state = model.init_state(source, lengths)
        for _ in range(max_length):
            logits, state = model.step(tokens, state)
            if not all(left):  # a finished sentence goes on taking steps with its batch, and its logits do not count
                logits = logits.masked_fill(~running[:, None], 0.0)
            tokens, scores = take(pick, logits)
            total = total + scores.masked_fill(~running, 0.0)
            ids.append(tokens)
            if state.weights is not None:
                maps.append(state.weights)
            running = running & ~torch.isin(tokens, ends)
            left = running.tolist()
            if not any(left):
                break
    rows = torch.stack(ids, dim=1).tolist()
    weights: Sequence[Tensor | None] = torch.stack(maps, dim=1).unbind() if maps else [None] * len(rows)
    return [Hypothesis.of(*row, end_ids) for row in zip(rows, total.tolist(), weights, strict=True)]


@torch.no_grad()
def beam(
    model: Stepper,
    source: Tensor,
    lengths: Tensor,
    *,
    max_length: int,
    beam_size: int = 4,
    length_penalty: float = 1.0,
    begin_id: int = BOS,
    end_ids: Sequence[int] = (EOS,),
) -> list[Hypothesis]:
    """Keep the ``beam_size`` most probable beginnings of each sentence; return the best of those that ended.

    Hypotheses are compared by log-probability divided by their length (<eos> counted) to the power of
    ``length_penalty``: 0 compares plain probabilities, which favour short sentences; 1 the mean per token. If none has
    ended within ``max_length`` tokens, the best beginning is returned, marked unfinished.

    Source: Wu et al. 2016, section 7 (pruning and normalising by length).
    """
    end_ids = _check(source, lengths, max_length, begin_id, end_ids)
    check_integer("beam_size", beam_size)
    check_number("length_penalty", length_penalty, at_least=0)
    with evaluating(model):
        size, device = source.shape[0], source.device
        state = model.init_state(source, lengths).select(torch.arange(size, device=device).repeat_interleave(beam_size))
        first_row = torch.arange(size, device=device)[:, None] * beam_size
        ends = torch.tensor(end_ids, dtype=torch.long, device=device)
        tokens = torch.full((size * beam_size,), begin_id, device=device)
        # All beams of a sentence begin alike, so only the first one counts in the first step.
        scores = torch.full((size, beam_size), -math.inf, device=device)
        scores[:, 0] = 0.0
        ids = torch.empty((size * beam_size, 0), dtype=torch.long, device=device)
        maps: Tensor | None = None
        best: list[Hypothesis | None] = [None] * size
        values = [-math.inf] * size  # of the best that ended
        searched = set(range(size))
        for length in range(1, max_length + 1):
            logits, state = model.step(tokens, state)
            logp = logits.float().log_softmax(-1)
            vocab = logp.shape[-1]
            candidates = (scores[..., None] + logp.view(size, beam_size, vocab)).flatten(1)
            # Each beam offers each end at most once, so that many candidates always leave beam_size that go on.
            top, indices = candidates.topk(min((1 + len(end_ids)) * beam_size, candidates.shape[1]), dim=1)
            parents, tokens_2d = first_row + indices // vocab, indices % vocab
            if state.weights is not None:
                row = state.weights[:, None]
                maps = row if maps is None else torch.cat([maps, row], dim=1)
            ended = torch.isin(tokens_2d, ends)
            for i, j in (ended & torch.isfinite(top)).nonzero().tolist():
                value = float(top[i, j]) / length**length_penalty
                # Only among the first beam_size candidates, as if the end had taken one of the places.
                if j < beam_size and value > values[i]:
                    parent = int(parents[i, j])
                    sentence = [*ids[parent].tolist(), int(tokens_2d[i, j])]
                    weights = None if maps is None else maps[parent]
                    values[i], best[i] = value, Hypothesis.of(sentence, float(top[i, j]), weights, end_ids)
            scores, order = top.masked_fill(ended, -math.inf).topk(beam_size, dim=1)
            rows = parents.gather(1, order).flatten()
            tokens = tokens_2d.gather(1, order).flatten()
            ids = torch.cat([ids[rows], tokens[:, None]], dim=1)
            maps = None if maps is None else maps[rows]
            state = state.select(rows)
            # Log-probabilities only fall, so a beginning can reach at most that of the longest possible sentence.
            reachable = (scores[:, 0] / max_length**length_penalty).tolist()
            if any(math.isnan(reachable[i]) for i in searched):
                raise ValueError(BAD_LOGITS)
            searched -= {i for i in searched if best[i] is not None and values[i] >= reachable[i]}
            if not searched:
                break
    for i, first in enumerate(range(0, size * beam_size, beam_size)):
        weights = None if maps is None else maps[first]
        best[i] = best[i] or Hypothesis.of(ids[first].tolist(), float(scores[i, 0]), weights, end_ids)
    return [found for found in best if found is not None]


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    pick: Pick = argmax,
    end_ids: Sequence[int] = (EOS,),
) -> list[Hypothesis]:
    """Continue each prompt, of whatever length, with the tokens that ``pick`` takes; all of them in one batch.

    ``prompts`` are token ids. A hypothesis holds the new tokens alone, up to the first of ``end_ids``: at most
    ``max_new_tokens``, that one counted, and one that needs more is marked unfinished. ``log_probability`` is the
    model's, as in ``sample``. Keys and values are cached; a prompt that has ended leaves the batch. The model is run
    in evaluation mode and left in the mode it was in. Raises ``ValueError`` if the logits of a prompt that has not
    ended have no finite greatest one, as when one is NaN.
    """
    check_integer("max_new_tokens", max_new_tokens)
    end_ids = token_ids("end_ids", end_ids)
    device = next(model.parameters()).device
    tokens, lengths = _padded(prompts, model.config.vocab_size)
    running = list(range(len(tokens)))
    ids: list[list[int]] = [[] for _ in running]
    totals = [0.0] * len(ids)
    with evaluating(model):
        logits, state = model.prefill(tokens.to(device), lengths.to(device))
        for count in range(1, max_new_tokens + 1):
            taken, scores = take(pick, logits)
            for row, token, score in zip(running, taken.tolist(), scores.tolist(), strict=True):
                ids[row].append(token)
                totals[row] += score
            left = [place for place, row in enumerate(running) if ids[row][-1] not in end_ids]
            if not left or count == max_new_tokens:
                break
            if len(left) < len(running):
                running, rows = [running[place] for place in left], torch.tensor(left, device=device)
                taken, state = taken[rows], state.select(rows)
            logits, state = model.step(taken, state)
    return [Hypothesis.of(row, total, None, end_ids) for row, total in zip(ids, totals, strict=True)]


def _check(source: Tensor, lengths: Tensor, max_length: int, begin_id: int, end_ids: Sequence[int]) -> tuple[int, ...]:
    """Check what all searches take, but for the kind of ``source``, which may be images; returns ``end_ids``."""
    check_integer("max_length", max_length)
    check_integer("begin_id", begin_id, at_least=0)
    if not isinstance(source, Tensor) or source.dim() < 2:
        raise ValueError(f"source: expected a tensor of shape (batch, length), got {kind(source)}")
    check_integers("lengths", lengths, axes=1)
    check_lengths(lengths, len(source))
    return token_ids("end_ids", end_ids)


def _padded(prompts: Sequence[Sequence[int]], vocab_size: int) -> tuple[Tensor, Tensor]:
    """Prompts as ``(B, T)`` with their lengths ``(B,)``."""
    listed = prompts.tolist() if hasattr(prompts, "tolist") else prompts
    listed = listed if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else ()
    rows = [torch.tensor(token_ids("prompts", prompt, vocab_size), dtype=torch.long) for prompt in listed]
    if not rows or not all(map(len, rows)):
        raise ValueError(f"prompts: expected at least one, and a token id in each, got {shown(prompts)}")
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])
