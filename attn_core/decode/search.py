"""Sentences one token at a time: greedily or by drawing, for a whole batch at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attn_core.contract import INTEGERS, check_integer, kind, shown
from attn_core.data import Vocab
from attn_core.data.batches import pad
from attn_core.decode.hypothesis import Hypothesis, Stepper, evaluating
from attn_core.decode.pick import Pick, Sampler, argmax
from attn_core.transformer import LanguageModel


def greedy(model: Stepper, source: Tensor, lengths: Tensor, *, max_length: int) -> list[Hypothesis]:
    """Take the likeliest token at each step, for a whole batch at once.

    Shapes: ``source (B, S)``, ``lengths (B,)``. At most ``max_length`` tokens come, <eos> counted; a sentence that
    needs more is marked unfinished.

    Raises:
        ValueError: if ``max_length`` is below 1.
    """
    return sample(model, source, lengths, max_length=max_length, pick=argmax)


@torch.no_grad()
def sample(
    model: Stepper, source: Tensor, lengths: Tensor, *, max_length: int, pick: Pick | None = None
) -> list[Hypothesis]:
    """Draw one sentence for each source: ``greedy``, but at each step with the token that ``pick`` takes.

    ``pick`` is ``Sampler()`` by default, the model's own distribution. ``log_probability`` is always the model's, not
    that of a distribution which a sampler has sharpened or cut. Shapes and the rest as ``greedy``.

    Raises:
        ValueError: if ``max_length`` is below 1, or ``pick`` does not give one token for each row.
    """
    check_integer("max_length", max_length)
    pick = Sampler() if pick is None else pick
    state = model.init_state(source, lengths)
    tokens = torch.full((source.shape[0],), Vocab.BOS, device=source.device)
    running = torch.ones_like(tokens, dtype=torch.bool)
    total = torch.zeros(source.shape[0], device=source.device)
    ids, maps = [], []
    for _ in range(max_length):
        logits, state = model.step(tokens, state)
        tokens, scores = _take(pick, logits)
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
    return [Hypothesis.of(row, float(total[i]), None if weights is None else weights[i]) for i, row in enumerate(rows)]


@torch.no_grad()
def generate(
    model: LanguageModel, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, pick: Pick = argmax
) -> list[Hypothesis]:
    """Continue each prompt, of whatever length, with the tokens that ``pick`` takes; all of them in one batch.

    ``prompts`` are token ids. A hypothesis holds the new tokens alone: at most ``max_new_tokens``, <eos> counted, and
    one that needs more is marked unfinished. ``log_probability`` is the model's, as in ``sample``. Keys and values are
    cached; a prompt that has ended leaves the batch. The model is run in evaluation mode and left in the mode it was
    in.

    Raises:
        ValueError: if there is no prompt, a prompt is empty or holds other than token ids, ``max_new_tokens`` is below
            1, or ``pick`` does not give one token for each row.
    """
    check_integer("max_new_tokens", max_new_tokens)
    device = next(model.parameters()).device
    tokens, lengths = _padded(prompts)
    running = list(range(len(prompts)))
    ids: list[list[int]] = [[] for _ in running]
    totals = [0.0] * len(ids)
    with evaluating(model):
        logits, state = model.prefill(tokens.to(device), lengths.to(device))
        for count in range(1, max_new_tokens + 1):
            taken, scores = _take(pick, logits)
            for row, token, score in zip(running, taken.tolist(), scores.tolist(), strict=True):
                ids[row].append(token)
                totals[row] += score
            left = [place for place, row in enumerate(running) if ids[row][-1] != Vocab.EOS]
            if not left or count == max_new_tokens:
                break
            if len(left) < len(running):
                running, rows = [running[place] for place in left], torch.tensor(left, device=device)
                taken, state = taken[rows], state.select(rows)
            logits, state = model.step(taken, state)
    return [Hypothesis.of(row, total, None) for row, total in zip(ids, totals, strict=True)]


def _take(pick: Pick, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens taken from logits ``(B, V)``, and the model's log-probabilities of them: ``(B,)`` each."""
    logits = logits.float()
    tokens = pick(logits)
    integers = isinstance(tokens, Tensor) and tokens.dtype == torch.int64
    if not integers or tokens.shape != logits.shape[:1] or tokens.device != logits.device:
        raise ValueError(f"pick: expected {len(logits)} token ids (int64) on {logits.device}, got {kind(tokens)}")
    return tokens, logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]


def _padded(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Prompts as ``(B, T)`` with their lengths ``(B,)``."""
    if not len(prompts) or not all(len(prompt) for prompt in prompts):
        raise ValueError(f"prompts: expected at least one, and a token id in each, got {shown(prompts)}")
    rows = [torch.tensor(prompt) for prompt in prompts]
    if any(row.dtype not in INTEGERS for row in rows):
        raise ValueError(f"prompts: expected token ids, got {shown(prompts)}")
    return pad(rows), torch.tensor([len(row) for row in rows])
