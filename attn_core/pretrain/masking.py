"""Hiding words: which tokens a model has to restore, and what stands in their place."""

import torch
from torch import Tensor

from attn_core.contract import check_tokens, kind
from attn_core.data import Vocab
from attn_core.data.vocab import PretrainingVocab

HIDDEN, REPLACED = 0.8, 0.1
"""Of the chosen tokens these shares become <mask> and a random word; the rest stay."""


def mask_tokens(
    tokens: Tensor, vocab_size: int, *, generator: torch.Generator, share: float = 0.15
) -> tuple[Tensor, Tensor]:
    """Choose words of each row at random, and hide them: the inputs, and the targets to restore.

    Shapes: ``tokens (B, T)``, numbers of a ``PretrainingVocab`` of ``vocab_size`` tokens; both results ``(B, T)``. In
    each row ``share`` of the words is chosen, rounded, but one at least; special tokens and padding never are. In the
    inputs 80 % of the chosen become <mask>, 10 % a random word, 10 % stay as they are: a model that always saw <mask>
    would meet another kind of text when it is tuned. The targets hold the chosen words, and <pad> everywhere else.

    Raises:
        ValueError: ``tokens`` of another kind or outside the vocabulary, a vocabulary without words, no generator, or
            a ``share`` not in (0, 1].

    Source: Devlin et al. 2018, section 3.1, task 1; the number per row as in the authors' program.
    """
    specials = len(PretrainingVocab.SPECIALS)
    if type(vocab_size) is not int or vocab_size <= specials:
        raise ValueError(f"vocab_size: expected an integer above {specials}, got {vocab_size!r}")
    check_tokens("tokens", tokens, vocab_size, axes=2)
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator: expected a torch.Generator, got {kind(generator)}")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share <= 1.0:
        raise ValueError(f"share: expected a share in (0, 1], got {share!r}")
    words = tokens >= specials
    number = words.sum(1)
    wanted = (share * number).round().clamp(min=1).minimum(number)
    # Each row's words in a random order, everything else behind them: the first so many are chosen.
    order = torch.rand(tokens.shape, generator=generator).masked_fill(~words, 2.0).argsort(1)
    chosen = torch.zeros_like(words).scatter(1, order, torch.arange(tokens.shape[1]) < wanted[:, None])
    fate = torch.rand(tokens.shape, generator=generator)
    others = torch.randint(specials, vocab_size, tokens.shape, generator=generator)
    inputs = tokens.masked_fill(chosen & (fate < HIDDEN), PretrainingVocab.MASK)
    inputs = torch.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), others.to(tokens.dtype), inputs)
    return inputs, tokens.masked_fill(~chosen, Vocab.PAD)
