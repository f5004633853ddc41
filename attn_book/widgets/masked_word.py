"""A quiz on masked words: the reader guesses one, then sees the model's predictions and attention."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import traitlets

from attn_book import plots
from attn_book.maps import read_maps, read_tokens
from attn_book.widgets.base import (
    Joined,
    RefusedError,
    StaticWidget,
    Whole,
    check_whole,
    from_base64,
    png_of,
    to_base64,
)

_TOP = 255  # a weight of 1, as the widget holds it
_MOST = 9_999
_BLANK = "____"


class MaskedWordExplorer(StaticWidget):
    """Sentences in which a reader hides a word, guesses it, and compares with the model's guesses and attention.

    Everything is computed beforehand. Sentence s has T tokens, and those with a prediction can be hidden:

    - `sentences[s]`: T strings, special tokens included;
    - `predictions[s]`: T entries. Entry i is None if token i cannot be hidden; otherwise it is what the model predicts
      with token i masked, `(candidates, rank, probability)`: its best words as pairs (word, probability), best first;
      the true word's rank among all words, from 1; and the true word's probability;
    - `weights[s]`: tensor or array `(T, L, H, T)`; row i holds the attention from position i, masked, to all T tokens
      in each of L layers and H heads. L and H are the same for all sentences. Rows of tokens that cannot be hidden are
      not read.

    These traits are synced: `sentence`; `position`, the hidden token (−1: none); `layer` (−1: the mean over all layers
    and heads) and `head` within a layer (−1: the mean over its heads); and `guesses`, the reader's answers, each
    `[sentence, position, word]`, where the word is None if the reader looked without guessing. Weights are stored in
    steps of 1 / 255, probabilities with four digits.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Devlin et al. 2018, section 3.1 (the masked language model).
    """

    _esm = Joined("page.js", "masked_text.js", "masked_word.js")
    _css = Joined("page.css", "masked_word.css")

    sentences: traitlets.List[list[str]] = traitlets.List().tag(sync=True, static=True)
    predictions: traitlets.List[list[Any]] = traitlets.List().tag(sync=True, static=True)
    layers = traitlets.Int().tag(sync=True, static=True)
    heads = traitlets.Int().tag(sync=True, static=True)
    codes = traitlets.Unicode().tag(sync=True, static=True)
    sentence = Whole(0, 0, _MOST).tag(sync=True, static=True)
    position = Whole(-1, -1, _MOST).tag(sync=True, static=True)
    layer = Whole(-1, -1, _MOST).tag(sync=True, static=True)
    head = Whole(-1, -1, _MOST).tag(sync=True, static=True)
    guesses = traitlets.TraitType[Any, Any](()).tag(sync=True, static=True)

    def __init__(
        self,
        sentences: Iterable[Iterable[str]],
        predictions: Iterable[Iterable[Any]],
        weights: Iterable[Any],
        *,
        sentence: int = 0,
        position: int = -1,
        layer: int = -1,
        head: int = -1,
    ) -> None:
        listed = [
            _listed(text, f"sentences[{s}]", "token")
            for s, text in enumerate(_listed(sentences, "sentences", "sentence"))
        ]
        texts = [read_tokens(text, f"sentences[{s}]", len(text)) for s, text in enumerate(listed)]
        entries = [
            _read_predictions(entry, texts[s], f"predictions[{s}]")
            for s, entry in enumerate(_listed(predictions, "predictions", "sentence", len(texts)))
        ]
        rows: list[np.ndarray] = []
        for s, array in enumerate(_listed(weights, "weights", "sentence", len(texts))):
            rows.append(_read_weights(array, entries[s], rows[0].shape[1:3] if rows else (), f"weights[{s}]"))
        num_layers, num_heads = rows[0].shape[1:3]
        codes = np.rint(np.concatenate([array.ravel() for array in rows]) * _TOP).clip(0, _TOP).astype(np.uint8)
        super().__init__(
            sentences=texts,
            predictions=entries,
            layers=num_layers,
            heads=num_heads,
            codes=to_base64(codes),
            sentence=sentence,
            position=position,
            layer=layer,
            head=head,
            guesses=[],
        )

    def __repr__(self) -> str:
        hidden = sum(entry is not None for entries in self.predictions for entry in entries)
        return (
            f"MaskedWordExplorer(sentences={len(self.sentences)}, words={hidden}, "
            f"layers={self.layers}, heads={self.heads})"
        )

    @traitlets.validate("sentence", "position", "layer", "head")
    def _within(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        if name == "sentence":
            return check_whole(name, value, 0, len(self.sentences) - 1)
        if name != "position":
            return check_whole(name, value, -1, getattr(self, f"{name}s") - 1)
        # A new widget's traits are validated in no fixed order: the sentence may not have been validated yet.
        sentence = check_whole("sentence", self.sentence, 0, len(self.sentences) - 1)
        index = check_whole(name, value, -1, len(self.sentences[sentence]) - 1)
        if index >= 0 and self.predictions[sentence][index] is None:
            expected = ", ".join(map(str, self._hideable(sentence)))
            raise RefusedError(f"position: expected -1 or a word that can be hidden ({expected}), got {value!r}")
        return index

    @traitlets.validate("guesses")
    def _possible(self, proposal: Any) -> list[list[Any]]:
        places = [[s, i] for s in range(len(self.sentences)) for i in self._hideable(s)]
        guesses = proposal["value"] if isinstance(proposal["value"], list | tuple) else [proposal["value"]]
        for guess in guesses:
            match guess:
                case [s, i, None | str()] if [s, i] in places:
                    places.remove([s, i])
                case _:
                    raise RefusedError(
                        "guesses: expected [sentence, position, word or None], each position one that can be hidden "
                        f"and there once, got {guess!r}"
                    )
        return [[int(s), int(i), word] for s, i, word in guesses]

    @traitlets.observe("sentence")
    def _stay(self, _: Any) -> None:
        if self.position not in self._hideable(self.sentence):
            self.position = -1

    def attention(self, position: int) -> np.ndarray:
        """Return the weights from the masked `position` to all T tokens of the present sentence, `(T,)` float64.

        They are those of the present `layer` and `head`, with the widget's precision.

        Raises:
            ValueError: if the token at `position` cannot be hidden.
        """
        hideable = self._hideable(self.sentence)
        if position not in hideable:
            expected = ", ".join(map(str, hideable))
            raise ValueError(f"position: expected a word that can be hidden ({expected}), got {position!r}")
        lengths = [len(text) for text in self.sentences]
        cells = self.layers * self.heads
        start = sum(len(self._hideable(s)) * cells * lengths[s] for s in range(self.sentence))
        size = cells * lengths[self.sentence]
        first = start + hideable.index(position) * size
        maps = from_base64(self.codes, np.uint8)[first : first + size].reshape(self.layers, self.heads, -1) / _TOP
        layer, head = self._chosen()
        heads = maps.reshape(cells, -1) if layer < 0 else maps[layer] if head < 0 else maps[layer, head, None]
        return np.asarray(heads.mean(0))

    def describe(self) -> str:
        """Describe the picture: the sentence with its blank, the model's predictions, and the blank's attention."""
        position, tokens = self._shown(), self.sentences[self.sentence]
        candidates, rank, probability = self.predictions[self.sentence][position]
        words = ", ".join(f"{word} {_percent(share)}" for word, share in candidates)
        weights = self.attention(position)
        blanked = self._blanked(position)
        looks = [f"{blanked[i]} {_percent(weights[i])}" for i in np.argsort(-weights, kind="stable")[:3]]
        return (
            f"Predict the masked word: {' '.join(blanked)} The model says: {words}. The true word is "
            f"{tokens[position]}, rank {rank}, {_percent(probability)}. {self._whose()}: most to {', '.join(looks)}."
        )

    def picture(self) -> bytes:
        """Draw the predictions and the attention for the hidden word, or for the sentence's first, as a PNG."""
        from matplotlib.figure import Figure

        position, tokens = self._shown(), self.sentences[self.sentence]
        bars = [
            (plots.visible(word, 16) + (" ← true word" if true else ""), p) for word, p, true in self._bars(position)
        ]
        rows = max(len(bars), len(tokens))
        with plots.style():
            figure = Figure(figsize=(8.0, 1.2 + 0.24 * rows), dpi=80, layout="constrained")
            left, right = figure.subplots(1, 2)
            figure.suptitle(plots.visible(" ".join(self._blanked(position)), 90), fontsize=11, parse_math=False)
            _draw_bars(left, bars, rows, "What the model says")
            names = [plots.visible(token, 16) for token in self._blanked(position)]
            _draw_bars(right, list(zip(names, self.attention(position), strict=True)), rows, self._whose())
            return png_of(figure, 32)

    def _hideable(self, sentence: int) -> list[int]:
        entries = self.predictions[sentence] if 0 <= sentence < len(self.predictions) else []
        return [i for i, entry in enumerate(entries) if entry is not None]

    def _shown(self) -> int:
        return self.position if self.position >= 0 else self._hideable(self.sentence)[0]

    def _blanked(self, position: int) -> list[str]:
        return [_BLANK if i == position else token for i, token in enumerate(self.sentences[self.sentence])]

    def _bars(self, position: int) -> Iterator[tuple[str, float, bool]]:
        """The candidates, then the true word if it is no candidate: word, probability, whether it is the true one."""
        candidates, _, probability = self.predictions[self.sentence][position]
        word = self.sentences[self.sentence][position]
        yield from ((candidate, share, candidate == word) for candidate, share in candidates)
        if word not in [candidate for candidate, _ in candidates]:
            yield word, probability, True

    def _chosen(self) -> tuple[int, int]:
        return (0 if self.layers == 1 else self.layer), (0 if self.heads == 1 else self.head)

    def _whose(self) -> str:
        layer, head = self._chosen()
        if layer < 0:
            return "Attention from the blank, mean of all heads"
        return f"Attention from the blank, layer {layer}, {'mean of heads' if head < 0 else f'head {head}'}"


def _draw_bars(ax: Any, bars: list[tuple[str, float]], rows: int, title: str) -> None:
    """A bar for each name with its share of 1, the first on top. Bars are as high as if there were `rows` of them."""
    names, shares = zip(*bars, strict=True)
    drawn = ax.barh(range(len(bars)), shares, height=0.7, color="#5a3aa6")
    ax.bar_label(drawn, [_percent(share) for share in shares], padding=3, fontsize=9)
    ax.set_yticks(range(len(bars)), names, fontsize=9, parse_math=False)
    ax.set(xlim=(0, 1.15 * max(shares)), xticks=[], ylim=(rows - 0.5, -0.5))
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(length=0)
    ax.set_title(title, fontsize=10)


def _percent(share: float) -> str:
    if 0 < share < 0.005 or 0.995 <= share < 1:
        return "<1 %" if share < 0.5 else ">99 %"
    return f"{100 * share:.0f} %"


def _listed(value: Any, name: str, what: str, length: int | None = None) -> list[Any]:
    if isinstance(value, str | dict) or not isinstance(value, Iterable):
        raise ValueError(f"{name}: expected a sequence, an entry for each {what}, got {value!r}")
    entries = list(value)
    if not entries or length not in (None, len(entries)):
        raise ValueError(f"{name}: expected {length or 'an'} entry for each {what}, got {len(entries)}")
    return entries


def _read_predictions(entries: Any, tokens: list[str], name: str) -> list[Any]:
    listed = _listed(entries, name, "token", len(tokens))
    if all(entry is None for entry in listed):
        raise ValueError(f"{name}: expected a prediction for at least one token, got None for all")
    return [
        None if entry is None else _read_prediction(entry, token, f"{name}[{i}]")
        for i, (entry, token) in enumerate(zip(listed, tokens, strict=True))
    ]


def _read_prediction(entry: Any, word: str, name: str) -> list[Any]:
    """One word's prediction as plain lists, once rank and probability agree with the candidates."""
    try:
        pairs, place, share = entry
        words, shares = [one for one, _ in pairs], [float(part) for _, part in pairs]
        rank, true = operator.index(place), float(share)
    except (TypeError, ValueError):
        expected = "None or (candidates, rank, probability), candidates pairs (word, probability)"
        raise ValueError(f"{name}: expected {expected}, got {entry!r}") from None
    if not words or not all(isinstance(one, str) for one in words) or len(set(words)) < len(words):
        raise ValueError(f"{name}: expected candidates that are distinct strings, got {words}")
    if not all(0 <= part <= 1.001 for part in [*shares, true]) or sum(shares) > 1.001 or shares != sorted(shares)[::-1]:
        raise ValueError(f"{name}: expected probabilities, the greatest first, got {shares} and {true}")
    # Equal probabilities may stand in either order.
    agreeing = [shares[words.index(word)]] if word in words else []
    agreeing.append(shares[min(rank, len(shares)) - 1] if 0 < rank <= len(shares) else min(true, shares[-1]))
    missing = rank < 1 or (rank > len(words)) == (word in words) and true != shares[-1]
    if missing or not all(math.isclose(true, part, rel_tol=1e-3, abs_tol=1e-6) for part in agreeing):
        got = f"rank {rank} and probability {true:g} beside {dict(zip(words, shares, strict=True))}"
        raise ValueError(f"{name}: expected rank and probability of the true word, {word!r}, got {got}")
    return [[[one, float(f"{part:.4g}")] for one, part in zip(words, shares, strict=True)], rank, float(f"{true:.4g}")]


def _read_weights(value: Any, entries: list[Any], others: tuple[int, ...], name: str) -> np.ndarray:
    """The rows of the words that can be hidden, `(words, L, H, T)`."""
    count, shape = len(entries), tuple(getattr(value, "shape", ()))
    if len(shape) != 4 or shape[::3] != (count, count) or shape[1:3] != (others or shape[1:3]):
        layers, heads = others or ("L", "H")
        got = shape or type(value).__name__
        raise ValueError(f"{name}: expected a tensor ({count}, {layers}, {heads}, {count}), got {got}")
    rows = read_maps(value[[i for i, entry in enumerate(entries) if entry is not None]]).weights
    far = float(np.abs(rows.sum(-1) - 1).max())
    if far > 0.01:
        raise ValueError(f"{name}: expected rows that sum to 1, got a sum that is {far:.3g} away")
    return rows
