"""A trained translator that runs in the page, from its weights and our own JavaScript alone."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import torch
import traitlets
from torch import nn

from attn_book import plots
from attn_book.data import Vocab
from attn_book.data.tokens import tokenize
from attn_book.translation import translate
from attn_book.widgets.base import Joined, RefusedError, StaticWidget, png_of, read_json
from attn_book.widgets.exported import dequantised, export_translator
from attn_core.capture import capture_attention
from attn_core.contract import shown
from attn_core.evaluation import evaluating

SENTENCE = "the black cat does not drink the hot soup ."
_LONGEST = 60  # tokens of a translation, as in translator.js
_KEYS = {"kind", "source", "target", "weights"}


class Translator(StaticWidget):
    """A field for a sentence, which a trained model translates in the page word by word, with its attention.

    `exported` is the result of `export_translator`. In the page the reader types another sentence, forces words,
    switches heads off, and sets the beam size and the temperature. The trait `sentence`, the text to translate, is
    synced: words of the model with spaces between them, or a text that `tokenize` splits into such words.

    A page shows the picture until its script runs. The picture is drawn from the translation that Python computed and
    `of` keeps in `exported` under the key `example`: `{"source": [...], "words": [...], "weights": [[...]]}`, where the
    weights have a row for each word of the translation and are the mean over the heads. Without an example for the
    sentence, the picture shows only the sentence.

    Where `writes` is set, the first translation is written word by word when it comes into view, with a line from each
    word to the one it attends to: once, and until the reader does something. For a page's first widget.

    Raises:
        ValueError: if an argument, or a value that `sentence` is set to, does not fit. The message names it.
    """

    _esm = Joined(
        "page.js",
        "translator_model.js",
        *(f"translator_{part}.js" for part in ("text", "field", "words", "map")),
        "translator.js",
    )
    _css = Joined("page.css", "translator.css")

    exported = traitlets.TraitType[Any, Any]({}).tag(sync=True, static=True)
    sentence = traitlets.TraitType[Any, Any]("").tag(sync=True, static=True)
    writes = traitlets.Bool(False).tag(sync=True, static=True)

    def __init__(self, exported: dict[str, Any], sentence: str = SENTENCE) -> None:
        _check_exported(exported)
        super().__init__(exported=exported, sentence=_check_sentence(sentence, exported["source"]))

    @classmethod
    def of(cls, model: nn.Module, source_vocab: Vocab, target_vocab: Vocab, sentence: str = SENTENCE) -> Translator:
        """Return the widget of a trained model, with the model's translation of `sentence`.

        Raises:
            ValueError: if `export_translator` refuses the model, the sentence has a word that the model does not know,
                or the translation is empty.
        """
        exported = export_translator(model, source_vocab, target_vocab)
        words = read_words(_check_sentence(sentence, exported["source"]), source_vocab)
        example = _example(dequantised(model), words, source_vocab, target_vocab)
        return cls({**exported, "example": example}, sentence)

    @classmethod
    def load(cls, path: str | Path, sentence: str = SENTENCE) -> Translator:
        """Return the widget of a model whose exported weights a JSON file holds.

        Raises:
            ValueError: if the file is not JSON, or its content or the sentence does not fit.
            OSError: if the file cannot be read.
        """
        return cls(read_json(path), sentence)

    def __repr__(self) -> str:
        source, target = (len(self.exported[side]) for side in ("source", "target"))
        return f"Translator(kind={self.exported['kind']!r}, source={source}, target={target})"

    @traitlets.validate("exported")
    def _whole(self, proposal: Any) -> dict[str, Any]:
        _check_exported(proposal["value"])
        return proposal["value"]

    @traitlets.validate("sentence")
    def _known(self, proposal: Any) -> str:
        # A new widget's traits are validated in no fixed order; the constructor has already checked the sentence.
        return _check_sentence(proposal["value"], self.exported["source"]) if self.exported else proposal["value"]

    def describe(self) -> str:
        """Say what the picture shows: the sentence, its translation, and where each of its words looks most."""
        kind = {"bahdanau": "recurrent, with Bahdanau’s attention"}.get(self.exported["kind"], "a Transformer")
        drawn = f"A translator that runs in this page, {kind}. Sentence: {self.sentence}"
        example = self._shown()
        if example is None:
            return drawn
        looks = [
            f"{word} → {example['source'][max(range(len(row)), key=row.__getitem__)]}"
            for word, row in zip(example["words"], example["weights"], strict=True)
        ]
        return f"{drawn} Translation: {' '.join(example['words'])} Greatest weights: {', '.join(looks)}."

    def picture(self) -> bytes:
        """Draw the sentence, its translation and the map of its attention, as a PNG."""
        from matplotlib.figure import Figure

        example = self._shown()
        with plots.style():
            if example is None:
                figure = Figure(figsize=(7.0, 0.6), dpi=80)
                figure.text(0.02, 0.4, plots.visible(self.sentence, 90), fontsize=12, parse_math=False)
            else:
                source, words, grid = (example[name] for name in ("source", "words", "weights"))
                width, height = plots.figure_size(source, words, cell=0.32, most=8.0)
                figure = Figure(figsize=(max(width, 6.4), height + 0.6), dpi=80)
                lines = (plots.visible(" ".join(text), 90) for text in (source[:-1], words))
                figure.suptitle("\n→ ".join(lines), fontsize=11, x=0.02, ha="left", parse_math=False)
                top = max(max(row) for row in grid)
                plots.draw(figure.subplots(), torch.tensor(grid).numpy(), source, words, [], top=top)
            return png_of(figure, 128, thin_lines=False)

    def _shown(self) -> dict[str, Any] | None:
        """Python's own translation of the present sentence, if `exported` holds it."""
        example = self.exported.get("example")
        words = read_words(self.sentence, self.exported["source"])
        return example if example and example["source"] == [*words, "<eos>"] else None


def read_words(sentence: str, known: Container[str]) -> list[str]:
    """Split a text into words: a piece between spaces that is known stays whole, and `tokenize` splits the others.

    If `n't` is not a word of the model, it is read as `not`.
    """
    pieces = ([piece] if piece in known else tokenize(piece) for piece in sentence.split())
    return ["not" if word == "n't" and word not in known else word for piece in pieces for word in piece]


def _check_exported(exported: Any) -> None:
    if not isinstance(exported, dict) or not exported.keys() >= _KEYS:
        value = sorted(map(str, exported)) if isinstance(exported, dict) else exported
        raise RefusedError(f"exported: expected the result of export_translator, got {shown(value)}")
    for side in ("source", "target"):
        words = exported[side]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise RefusedError(f"exported: expected a list of words under {side!r}, got {shown(words)}")


def _check_sentence(sentence: Any, known: list[str]) -> str:
    if not isinstance(sentence, str) or not sentence.strip():
        raise RefusedError(f"sentence: expected a text, got {shown(sentence)}")
    words = set(known) - set(Vocab.SPECIALS)
    unknown = [word for word in read_words(sentence, words) if word not in words]
    if unknown:
        raise RefusedError(f"sentence: expected words that the model knows, got {', '.join(map(shown, unknown[:5]))}")
    return sentence


@torch.no_grad()
def _example(model: nn.Module, words: list[str], source_vocab: Vocab, target_vocab: Vocab) -> dict[str, Any]:
    """A model's translation of a sentence: its words, and for each the mean of the heads that attend to the source."""
    (translation,) = translate(model, [words], source_vocab, target_vocab, max_length=_LONGEST)
    device = next(model.parameters()).device
    source = torch.tensor([[*source_vocab.encode(words), Vocab.EOS]], device=device)
    written = [*translation.words, "<eos>"] if translation.finished else translation.words
    if not written:
        raise ValueError(f"model: expected one that writes words, got none in {_LONGEST} steps: has it been trained?")
    ids = [Vocab.BOS, *(target_vocab.encode(written)[:-1])]
    with evaluating(model), capture_attention(model) as maps:
        model(source, torch.tensor([source.shape[1]], device=device), torch.tensor([ids], device=device))
    # Bahdanau's decoder is one module with weights; a Transformer's layers have self-attention as well.
    heads = [weights[0][0] for name, weights in maps.items() if name.endswith(("decoder", "cross_attention"))]
    mean = torch.cat(heads).mean(0)
    return {
        "source": [*words, "<eos>"],
        "words": written,
        "weights": [[round(weight, 4) for weight in row] for row in mean.tolist()],
    }
