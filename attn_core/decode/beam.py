"""Beam search: the most probable sentences instead of the most probable tokens."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attn_core.contract import check_integer, check_number, token_ids
from attn_core.decode.hypothesis import BAD_LOGITS, BOS, EOS, Hypothesis, Stepper, check_source
from attn_core.evaluation import evaluating


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
    ``length_penalty``: 0 compares plain probabilities, which favour short sentences; 1 the mean per token. A sentence
    is searched until no beginning can still overtake its best ended hypothesis. Where none has ended within
    ``max_length`` tokens, the best beginning is returned, marked unfinished. The rest as ``greedy``.

    Source: Wu et al. 2016, section 7 (pruning and normalising by length).
    """
    check_integer("max_length", max_length)
    check_integer("beam_size", beam_size)
    check_integer("begin_id", begin_id, at_least=0)
    check_number("length_penalty", length_penalty, at_least=0)
    check_source(source, lengths)
    end_ids = token_ids("end_ids", end_ids)
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
        best: list[tuple[float, Hypothesis] | None] = [None] * size
        searched = set(range(size))  # the sentences that are searched still
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
                # Only among the first beam_size candidates, as if the end had taken one of the places.
                if j >= beam_size:
                    continue
                value = float(top[i, j]) / length**length_penalty
                if best[i] is None or value > best[i][0]:
                    parent = int(parents[i, j])
                    weights = None if maps is None else maps[parent]
                    sentence = [*ids[parent].tolist(), int(tokens_2d[i, j])]
                    best[i] = (value, Hypothesis.of(sentence, float(top[i, j]), weights, end_ids))
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
            searched -= {i for i in searched if (ended_best := best[i]) is not None and ended_best[0] >= reachable[i]}
            if not searched:
                break
    results = []
    for i, ended_best in enumerate(best):
        if ended_best is None:  # its first beam, unfinished
            weights = None if maps is None else maps[i * beam_size]
            found = Hypothesis.of(ids[i * beam_size].tolist(), float(scores[i, 0]), weights, end_ids)
            results.append(found)
        else:
            results.append(ended_best[1])
    return results
