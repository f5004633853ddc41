"""Hiding tokens: which ones a model has to restore, and what replaces them."""

import torch
from torch import Tensor

from attn_book.data import Vocab
from attn_book.data.vocab import PretrainingVocab
from attn_core.contract import check_integer, check_tokens, is_number, shown

HIDDEN, REPLACED = 0.8, 0.1
"""The shares of the chosen tokens that become <mask> and a random token; the rest stay."""


def mask_tokens(
    tokens: Tensor, vocab_size: int, *, generator: torch.Generator, share: float = 0.15
) -> tuple[Tensor, Tensor]:
    """Hide some tokens of each row, chosen at random: the inputs, and the targets to restore.

    Shapes: ``tokens (B, T)``, ids of a ``PretrainingVocab`` of ``vocab_size`` tokens; both results ``(B, T)``. In each
    row ``share`` of the tokens is chosen, rounded, but at least one; special tokens and padding never are. In the
    inputs 80 % of the chosen become <mask>, 10 % become a random token, and 10 % stay, because a model that always saw
    <mask> would meet another kind of text when it is tuned. The targets hold the chosen tokens, and <pad> elsewhere.

    Raises:
        ValueError: if ``tokens`` are of another kind or outside the vocabulary, which must have words, or if ``share``
            is not in (0, 1].

    Source: Devlin et al. 2018, section 3.1, task 1; the number per row as in the authors' program.
    """
    specials = len(PretrainingVocab.SPECIALS)
    check_integer("vocab_size", vocab_size, at_least=specials + 1)
    check_tokens("tokens", tokens, vocab_size, axes=2)
    if not is_number(share) or not 0.0 < share <= 1.0:
        raise ValueError(f"share: expected a share in (0, 1], got {shown(share)}")
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator: expected a torch.Generator, got {shown(generator)}")
    words = tokens >= specials
    number = words.sum(1)
    quota = (share * number).round().clamp(min=1).minimum(number)
    # Each row's words come in a random order, with everything else behind them, and the first ones are chosen.
    order = torch.rand(tokens.shape, generator=generator).masked_fill(~words, 2.0).argsort(1)
    chosen = torch.zeros_like(words).scatter(1, order, torch.arange(tokens.shape[1]) < quota[:, None])
    fate = torch.rand(tokens.shape, generator=generator)
    others = torch.randint(specials, vocab_size, tokens.shape, generator=generator)
    inputs = tokens.masked_fill(chosen & (fate < HIDDEN), PretrainingVocab.MASK)
    inputs = torch.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), others.to(tokens.dtype), inputs)
    return inputs, tokens.masked_fill(~chosen, Vocab.PAD)
