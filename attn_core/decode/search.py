"""Sentences of an encoder–decoder one token at a time: greedily or by drawing, for a whole batch at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attn_core.contract import check_integer, token_ids
from attn_core.decode.hypothesis import BOS, EOS, Hypothesis, Stepper, check_source
from attn_core.decode.pick import Pick, Sampler, argmax, take
from attn_core.evaluation import evaluating


def greedy(
    model: Stepper,
    source: Tensor,
    lengths: Tensor,
    *,
    max_length: int,
    begin_id: int = BOS,
    end_ids: Sequence[int] = (EOS,),
) -> list[Hypothesis]:
    """Take the likeliest token at each step, for a whole batch at once.

    Shapes: ``source (B, S)``, ``lengths (B,)``. A sentence begins after ``begin_id`` and ends at the first token of
    ``end_ids``. At most ``max_length`` tokens come, that one counted; a sentence that needs more is marked unfinished.
    The model is run in evaluation mode and left in the mode it was in.

    Raises:
        ValueError: if ``source``, ``lengths`` or an id is not as above, ``max_length`` is below 1, or the logits of a
            sentence that has not ended have no finite greatest one in a row, as where one is NaN.
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
    check_integer("max_length", max_length)
    check_integer("begin_id", begin_id, at_least=0)
    check_source(source, lengths)
    end_ids = token_ids("end_ids", end_ids)
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
