"""Texts of a language model: prompts continued one token at a time, in one batch."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attn_core.contract import check_integer, shown, token_ids
from attn_core.decode.hypothesis import EOS, Hypothesis
from attn_core.decode.pick import Pick, argmax, take
from attn_core.evaluation import evaluating
from attn_core.transformer import LanguageModel


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


def _padded(prompts: Sequence[Sequence[int]], vocab_size: int) -> tuple[Tensor, Tensor]:
    """Prompts as ``(B, T)`` with their lengths ``(B,)``."""
    listed = prompts.tolist() if hasattr(prompts, "tolist") else prompts
    listed = listed if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else ()
    rows = [torch.tensor(token_ids("prompts", prompt, vocab_size), dtype=torch.long) for prompt in listed]
    if not rows or not all(map(len, rows)):
        raise ValueError(f"prompts: expected at least one, and a token id in each, got {shown(prompts)}")
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])
