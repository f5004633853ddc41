"""Sentences one token at a time: greedily or by drawing, for a whole batch at once."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attn_core.contract import check_integer, kind, shown, token_ids
from attn_core.decode.hypothesis import BOS, EOS, Hypothesis, Stepper, check_source, evaluating
from attn_core.decode.pick import Pick, Sampler, argmax, check_logits
from attn_core.transformer import LanguageModel


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
    """Draw one sentence for each source: ``greedy``, but at each step with the token that ``pick`` takes.

    ``pick`` is ``Sampler()`` by default, the model's own distribution. ``log_probability`` is always the model's, not
    that of a distribution which a sampler has sharpened or cut. Shapes and the rest as ``greedy``.

    Raises:
        ValueError: as ``greedy``, and if ``pick`` does not give one token for each row.
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
            tokens, scores = _take(pick, logits)
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
    in evaluation mode and left in the mode it was in.

    Raises:
        ValueError: if there is no prompt, a prompt is empty or holds other than ids of the vocabulary,
            ``max_new_tokens`` is below 1, ``end_ids`` are no ids, ``pick`` does not give one token for each row, or the
            logits of a prompt that has not ended have no finite greatest one, as where one is NaN.
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
            taken, scores = _take(pick, logits)
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


def _take(pick: Pick, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens taken from logits ``(B, V)``, and the model's log-probabilities of them: ``(B,)`` each.

    Bad logits are refused here on the CPU. On a GPU, where each question waits for the device, the log-probabilities
    become NaN, which ``Hypothesis.of`` refuses.
    """
    logits = logits.float()
    if logits.device.type == "cpu":
        check_logits(logits)
    tokens = pick(logits)
    integers = isinstance(tokens, Tensor) and tokens.dtype == torch.int64
    if not integers or tokens.shape != logits.shape[:1] or tokens.device != logits.device:
        raise ValueError(f"pick: expected {len(logits)} token ids (int64) on {logits.device}, got {kind(tokens)}")
    return tokens, logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]


def _padded(prompts: Sequence[Sequence[int]], vocab_size: int) -> tuple[Tensor, Tensor]:
    """Prompts as ``(B, T)`` with their lengths ``(B,)``."""
    listed = prompts.tolist() if hasattr(prompts, "tolist") else prompts
    listed = listed if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else ()
    rows = [torch.tensor(token_ids("prompts", prompt, vocab_size), dtype=torch.long) for prompt in listed]
    if not rows or not all(map(len, rows)):
        raise ValueError(f"prompts: expected at least one, and a token id in each, got {shown(prompts)}")
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])
