"""A trained painter that runs in the page: from a caption and noise to a picture, with where each word is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
import traitlets
from torch import Tensor

from attn_book import plots
from attn_book.data import Vocab
from attn_book.painter import Painter, encode_captions, paint, to_images
from attn_book.widgets.base import Joined, RefusedError, StaticWidget, png_of, read_json
from attn_book.widgets.exported import export_painter, load_painter
from attn_core.capture import capture_attention
from attn_core.contract import shown

CAPTION = "a red circle left of a blue square"
STEPS = 20
"""As in the page, for the picture that stands there until its script runs."""

_SHOWN = (0, 10, 20)  # the steps after which the picture shows what is painted
_MAPS = 10  # and the step whose maps it shows
_LONGEST = 12  # words of a caption, as in text_to_image.js
_KEYS = {"patch", "heads", "layers", "dim", "words", "weights"}


class _Painted(NamedTuple):
    """What was painted for a caption: images `(3, 3, 32, 32)`, and a map `(rows, columns)` for each word."""

    words: list[str]
    images: Tensor
    maps: Tensor


class TextToImage(StaticWidget):
    """A field for a caption, from which a trained `Painter` paints in the page, step by step, with maps of its words.

    `exported` is the result of `export_painter`. In the page the reader types another caption, chooses other noise and
    the guidance, looks back at each step, weighs the words, and repaints with the attention weights of another caption.
    It begins when it is first seen. The trait `caption` is synced: words of the model with spaces between them.

    A page shows the picture until its script runs: what Python paints for the caption, from noise of its own, after 0,
    10 and 20 steps, and for each word its weight in each patch in step 10, the mean over heads and blocks.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Hertz et al. 2022 (maps of words, their weights, attention weights of another caption).
    """

    _esm = Joined(
        "page.js", "text_to_image_numbers.js", "text_to_image_model.js", "translator_field.js", "text_to_image.js"
    )
    _css = Joined("page.css", "text_to_image.css")

    exported = traitlets.TraitType[Any, Any]({}).tag(sync=True, static=True)
    caption = traitlets.TraitType[Any, Any]("").tag(sync=True, static=True)

    def __init__(self, exported: dict[str, Any], caption: str = CAPTION) -> None:
        _check_exported(exported)
        super().__init__(exported=exported, caption=_check_caption(caption, exported["words"]))

    @classmethod
    def of(cls, model: Painter, vocab: Vocab, caption: str = CAPTION) -> TextToImage:
        """Return the widget of a trained model.

        Raises:
            ValueError: if `export_painter` refuses the model, or the caption has a word that the model does not know.
        """
        return cls(export_painter(model, vocab), caption)

    @classmethod
    def load(cls, path: str | Path, caption: str = CAPTION) -> TextToImage:
        """Return the widget of a model whose exported weights a JSON file holds.

        Raises:
            ValueError: if the file is not JSON, or its content or the caption does not fit.
            OSError: if the file cannot be read.
        """
        return cls(read_json(path), caption)

    def __repr__(self) -> str:
        words, dim, layers = len(self.exported["words"]), self.exported["dim"], self.exported["layers"]
        return f"TextToImage(words={words}, dim={dim}, layers={layers})"

    @traitlets.validate("exported")
    def _whole(self, proposal: Any) -> dict[str, Any]:
        _check_exported(proposal["value"])
        return proposal["value"]

    @traitlets.validate("caption")
    def _known(self, proposal: Any) -> str:
        # A new widget's traits are validated in no fixed order; the constructor has already checked the caption.
        return _check_caption(proposal["value"], self.exported["words"]) if self.exported else proposal["value"]

    @traitlets.observe("exported", "caption")
    def _forget(self, _: Any) -> None:
        self._kept: _Painted | None = None

    def describe(self) -> str:
        """Say what the picture shows: the caption, the steps, and the patch that attends most to each word."""
        words, _, maps = self._painted()
        looks = []
        for word, one in zip(words, maps, strict=True):
            row, column = divmod(int(one.argmax()), one.shape[1])
            looks.append(f"{word} in row {row + 1}, column {column + 1} ({float(one.max()):.2f})")
        steps = ", ".join(map(str, _SHOWN))
        return (
            f"A painter that runs in this page. Caption: {' '.join(words)}. The picture after {steps} steps, from "
            f"noise to what is painted, and a map for each word. Greatest weights in step {_MAPS}: {'; '.join(looks)}."
        )

    def picture(self) -> bytes:
        """Draw the painting after 0, 10 and 20 steps, and under these the map of each word, as a PNG."""
        from matplotlib.figure import Figure

        words, images, maps = self._painted()
        with plots.style():
            figure = Figure(figsize=(6.4, 3.1), dpi=80)
            figure.suptitle(plots.visible(" ".join(words), 80), fontsize=11, x=0.02, ha="left", parse_math=False)
            (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.9, 1.2))
            for step, image, axes in zip(_SHOWN, images, above.subplots(1, len(_SHOWN)), strict=True):
                axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
                axes.set_title(f"step {step}" if step else "noise", fontsize=9)
                axes.axis("off")
            for word, one, axes in zip(words, maps, below.subplots(1, len(words), squeeze=False)[0], strict=True):
                axes.imshow(one.numpy(), cmap="Purples", vmin=0, interpolation="nearest")
                axes.set_title(plots.visible(word, 9), fontsize=8, parse_math=False)
                axes.set(xticks=[], yticks=[])
            return png_of(figure, 128, thin_lines=False)

    def _painted(self) -> _Painted:
        """What Python paints for the present caption, always from the same noise."""
        if self._kept is None:
            self._kept = _paint(self.exported, read_caption(self.caption, self.exported["words"]))
        return self._kept


def read_caption(caption: str, known: list[str]) -> list[str]:
    """Split a text at its spaces into words; one that is not known as it stands is written small."""
    return [word if word in known else word.lower() for word in caption.split()]


def _paint(exported: dict[str, Any], words: list[str]) -> _Painted:
    model, ids_of = load_painter(exported)
    ids, lengths = encode_captions([words], ids_of)
    side = int(len(model.positions) ** 0.5)
    noise = torch.randn(1, side**2, model.inward.in_features, generator=torch.Generator().manual_seed(1))
    states = [noise]

    def keep(step: int, found: Tensor) -> None:
        states.append(states[-1] + (found - states[-1]) / (STEPS - step))

    with capture_attention(model) as captured:
        paint(model, ids, lengths, noise=noise, steps=STEPS, watch=keep)
    # Each call holds the caption and then the empty one; the first token is <bos>.
    blocks = [captured[f"blocks.{k}.cross_attention"][_MAPS][0] for k in range(len(model.blocks))]
    maps = torch.stack(blocks).mean((0, 1))[:, 1:].T.unflatten(-1, (side, side))
    return _Painted(words, to_images(torch.cat([states[step] for step in _SHOWN]), model.patch_size), maps)


def _check_exported(exported: Any) -> None:
    if not isinstance(exported, dict) or not exported.keys() >= _KEYS:
        value = sorted(map(str, exported)) if isinstance(exported, dict) else exported
        raise RefusedError(f"exported: expected the result of export_painter, got {shown(value)}")
    words = exported["words"]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise RefusedError(f"exported: expected a list of words under 'words', got {shown(words)}")


def _check_caption(caption: Any, known: list[str]) -> str:
    if not isinstance(caption, str) or not caption.strip():
        raise RefusedError(f"caption: expected a text, got {shown(caption)}")
    words = read_caption(caption, known)
    unknown = [word for word in words if word not in known or word in Vocab.SPECIALS]
    if unknown:
        raise RefusedError(f"caption: expected words that the model knows, got {', '.join(map(shown, unknown[:5]))}")
    if len(words) > _LONGEST:
        raise RefusedError(f"caption: expected at most {_LONGEST} words, got {len(words)}")
    return caption
