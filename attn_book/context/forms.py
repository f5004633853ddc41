"""What a context is made of: the whole paragraph, its sentences and itself, or what each word asks of its sentences.

Every form is called as ``(x, sentence_numbers, mask) -> context`` and has a ``context_dim``. Padding, where ``mask`` is
False, goes into no context, whatever stands there, and gets zeros where each position has its own.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from attn_core.capture import is_captured, record
from attn_core.contract import check_integer, check_integers, kind
from attn_core.mechanisms.dense import attention, attention_with_weights


def global_context(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The mean of a paragraph's words; of none, zeros.

    Shapes: ``x (B, T, C)``; ``mask (B, T)``, True = a word, False = padding. Returns ``(B, 1, C)``.

    Raises:
        ValueError: if ``x`` is not a floating tensor of three axes, or ``mask`` is not a boolean one that goes with it.

    Source: Yang et al. 2019 (Context-Aware Self-Attention Networks), "Global Context".
    """
    if not isinstance(x, Tensor) or x.dim() != 3 or not x.dtype.is_floating_point:
        raise ValueError(f"x: expected a floating tensor of shape (batch, length, size), got {kind(x)}")
    if mask is None:
        return x.sum(1, keepdim=True) / max(x.shape[1], 1)
    _check_words(mask, x)
    return _words(x, mask).sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]


def sentence_members(sentence_numbers: Tensor, mask: Tensor | None = None) -> Tensor:
    """Which of T words are in each of N sentences, N being one more than the highest number, at least 1.

    Shapes: ``sentence_numbers (B, T)``, integers 0, 1, 2, …; ``mask (B, T)``, True = a word, False = padding, which is
    in no sentence whatever its number. Returns ``(B, N, T)``; a sentence without words, as a short paragraph's last
    ones, has a row of False.

    Raises:
        ValueError: if ``sentence_numbers`` is not an integer tensor of two axes or puts a word into a sentence below 0
            or above T − 1, or if ``mask`` is not a boolean tensor of its shape.
    """
    check_integers("sentence_numbers", sentence_numbers, axes=2)
    if mask is not None:
        _check_words(mask, sentence_numbers)
    true = sentence_numbers if mask is None else sentence_numbers[mask]
    low, high = (int(x) for x in torch.aminmax(true)) if true.numel() else (0, 0)
    length = sentence_numbers.shape[1]
    if low < 0 or high >= max(length, 1):  # a number of millions would ask for as many sentences
        wrong = low if low < 0 else high
        raise ValueError(f"sentence_numbers: expected numbers from 0 to {length - 1} at words, got {wrong}")
    numbers = torch.arange(high + 1, device=sentence_numbers.device)
    members = sentence_numbers[:, None] == numbers[:, None]
    return members if mask is None else members & mask[:, None]


class GlobalContext(nn.Module):
    """``global_context`` as a form: one vector for all positions, ``(B, 1, model_dim)``, whatever the sentences.

    Raises:
        ValueError: if ``model_dim`` is below 1; in use, as ``global_context``.
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        check_integer("model_dim", model_dim)
        self.context_dim = model_dim

    def forward(self, x: Tensor, sentence_numbers: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x (B, T, C)`` to ``(B, 1, C)``; ``mask (B, T)`` is True at words."""
        return global_context(x, mask)


class AttentionPooling(nn.Module):
    """The weighted mean of each group's vectors, with weights that are learned.

    Each vector h is scored by tanh(W h + b) · u, and a softmax within the group makes weights of the scores: attention
    with one query u for all. The weights, ``(B, 1, N, S)``, are for ``capture_attention``.

    Raises:
        ValueError: if ``model_dim`` is below 1.

    Source: Yang et al. 2016 (Hierarchical Attention Networks), eq. 5 to 7.
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        check_integer("model_dim", model_dim)
        self.hidden = nn.Linear(model_dim, model_dim)
        self.question = nn.Parameter(torch.empty(model_dim))
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.zeros_(self.hidden.bias)
        nn.init.normal_(self.question, std=1 / math.sqrt(model_dim))  # for scores of size 1 or less

    def forward(self, x: Tensor, members: Tensor) -> Tensor:
        """One vector for each of N groups: ``(B, N, C)``, zeros for a group without members.

        Shapes: ``x (B, S, C)``; ``members (B, N, S)``, True where a vector is in the group. One that is in no group
        counts nowhere, whatever it holds.
        """
        x = _words(x, members.any(1))
        keys = torch.tanh(self.hidden(x))
        questions = self.question.to(keys.dtype).expand(x.shape[0], members.shape[1], -1)
        return _attend(self, questions, keys, x.to(keys.dtype), mask=members[:, None], scale=1.0)


class HierarchicalContext(nn.Module):
    """Words make sentence vectors, and these the paragraph's: each word gets its sentence's and the paragraph's vector.

    They stand side by side, so that ``context_dim`` is twice ``model_dim``. The weights of ``words`` and of
    ``sentences``, both ``AttentionPooling``, are for ``capture_attention``.

    Raises:
        ValueError: if ``model_dim`` is below 1.

    Source: Yang et al. 2016 (Hierarchical Attention Networks), eq. 5 to 10, without its recurrent encoders.
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.words, self.sentences = AttentionPooling(model_dim), AttentionPooling(model_dim)
        self.context_dim = 2 * model_dim

    def forward(self, x: Tensor, sentence_numbers: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x (B, T, C)`` to ``(B, T, 2C)``; ``sentence_numbers (B, T)``, and ``mask (B, T)``, True at words.

        Raises:
            ValueError: if an input has another size or kind, or as ``sentence_members``.
        """
        _check(x, self.context_dim // 2, sentence_numbers)
        members = sentence_members(sentence_numbers, mask)
        sentences = self.words(x, members)
        paragraph = self.sentences(sentences, members.any(2)[:, None])
        numbers = (sentence_numbers if mask is None else sentence_numbers.masked_fill(~mask, 0)).long()
        own = sentences.gather(1, numbers[..., None].expand(-1, -1, x.shape[2]))
        return _words(torch.cat((own, paragraph.expand_as(own)), -1), mask)


class DynamicContext(nn.Module):
    """Each word asks the paragraph's sentence vectors with a query of its own, and gets their weighted mean.

    The weights, ``(B, 1, T, N)``, are for ``capture_attention``, and so are those of ``words``, which make the sentence
    vectors.

    Raises:
        ValueError: if ``model_dim`` is below 1.

    Source: our form of a context "made anew from queries, keys and values"; sentence vectors after Yang et al. 2016.
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.words = AttentionPooling(model_dim)
        self.query, self.key = nn.Linear(model_dim, model_dim), nn.Linear(model_dim, model_dim)
        self.context_dim = model_dim
        for projection in (self.query, self.key):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def forward(self, x: Tensor, sentence_numbers: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x (B, T, C)`` to ``(B, T, C)``; ``sentence_numbers (B, T)``, and ``mask (B, T)``, True at words.

        Raises:
            ValueError: if an input has another size or kind, or as ``sentence_members``.
        """
        _check(x, self.context_dim, sentence_numbers)
        members = sentence_members(sentence_numbers, mask)
        sentences = self.words(x, members)
        queries, present = self.query(_words(x, mask)), members.any(2)[:, None, None]
        keys = self.key(sentences)
        return _words(_attend(self, queries, keys, sentences.to(keys.dtype), mask=present), mask)


def _attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Attention of one head, ``(B, T, C)`` to ``(B, S, C)``; the module's weights go to whoever captures them."""
    q, k, v = (x[:, None] for x in (q, k, v))
    if not is_captured(module):
        return attention(q, k, v, **options)[:, 0]
    out, weights = attention_with_weights(q, k, v, **options)
    record(module, weights)
    return out[:, 0]


def _words(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros at padding: a weight of 0 would not silence a NaN."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


def _check(x: Tensor, size: int, sentence_numbers: Tensor) -> None:
    if not isinstance(x, Tensor) or x.dim() != 3 or not x.dtype.is_floating_point or x.shape[2] != size:
        raise ValueError(f"x: expected a floating tensor of shape (batch, length, {size}), got {kind(x)}")
    if not isinstance(sentence_numbers, Tensor) or sentence_numbers.shape != x.shape[:2]:
        shape = tuple(x.shape[:2])
        raise ValueError(f"sentence_numbers: expected shape {shape}, as x, got {kind(sentence_numbers)}")


def _check_words(mask: Tensor, of: Tensor) -> None:
    """``mask`` says of each of the words ``of (B, T, …)`` whether it is one."""
    shape = tuple(of.shape[:2])
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise ValueError(f"mask: expected a boolean tensor of shape {shape}, got {kind(mask)}")
