"""Checks of the contrastive loss, its smallest value with repeated captions, and exchanged colours."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_book.contrastive import contrastive_loss as right_loss

_PAGE = "chapters/19_pictures"
_SPACE = (_PAGE, "Contrastive training: CLIP and SigLIP")
_SENTENCE = (_PAGE, "Patches: an image as a sequence")
_TRAINING = (_PAGE, "Training a small CLIP")

_COLOURS = ("red", "orange", "yellow", "green", "blue")
_SHAPES = ("circle", "square", "triangle", "star")


# Images and captions find each other.


def _pair_cases(draw: Inputs) -> Iterator[Case]:
    for name, temperature in (("a temperature of .5", 0.5), ("a temperature of .1", 0.1)):
        pairs, size = draw.whole(4, 7), draw.whole(8, 12)
        images = draw.normal(pairs, size)
        yield Case(name, (images, images + draw.normal(pairs, size), temperature))
    lengths = 1 + 20 * draw.uniform(pairs, 1)
    yield Case("vectors of many lengths", (lengths * images, draw.normal(pairs, size), 0.3), edge=True)
    yield Case("a temperature of .005", (images, images + 0.3 * draw.normal(pairs, size), 0.005), edge=True)
    yield Case("a single pair", (images[:1], images[1:2], 0.1), edge=True)


def _cosines(images: Tensor, texts: Tensor, axis: int = -1) -> Tensor:
    return functional.normalize(images, dim=axis) @ functional.normalize(texts, dim=axis).T


def _one_way(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits, torch.arange(len(logits)))


def _by_exponentials(images: Tensor, texts: Tensor, temperature: float) -> Tensor:
    raised = (_cosines(images, texts) / temperature).exp()
    own = raised.diag()
    return -((own / raised.sum(0)).log().mean() + (own / raised.sum(1)).log().mean()) / 2


clip_loss = Check(
    "clip_loss",
    function="contrastive_loss",
    answer=lambda images, texts, temperature: right_loss(_cosines(images, texts) / temperature),
    cases=_pair_cases,
    misconceptions=[
        Misconception(
            lambda images, texts, temperature: _one_way(_cosines(images, texts) / temperature),
            "only the images are matched to captions",
            "The captions are matched to images too: one softmax along each row, and one along each column.",
            _SPACE,
        ),
        Misconception(
            lambda images, texts, temperature: _one_way(_cosines(images, texts).T / temperature),
            "only the captions are matched to images",
            "The images are matched to captions too: one softmax along each column, and one along each row.",
            _SPACE,
        ),
        Misconception(
            lambda images, texts, temperature: 2 * right_loss(_cosines(images, texts) / temperature),
            "the two directions are added and not averaged",
            "The loss is the mean of both.",
            _SPACE,
        ),
        Misconception(
            lambda images, texts, temperature: right_loss(images @ texts.T / temperature),
            "the vectors are not normalised to length 1",
            "Only directions should count; otherwise a model could lower its loss with longer vectors.",
            _SPACE,
        ),
        Misconception(
            lambda images, texts, temperature: right_loss(_cosines(images, texts) * temperature),
            "the cosines are multiplied by the temperature",
            "A low temperature makes differences larger: divide by it.",
            _SPACE,
        ),
        Misconception(
            lambda images, texts, temperature: right_loss(_cosines(images, texts, 0) / temperature),
            "lengths are taken over the batch instead of over a vector's entries",
            "A vector must not depend on the others of its batch: normalise along the last axis.",
            _SPACE,
        ),
        Misconception(
            _by_exponentials,
            "exponentials are divided by their sums directly",
            "At a low temperature e to the power of a logit overflows. cross_entropy and log_softmax do not.",
            _SPACE,
        ),
    ],
    hints=[
        (
            "Unit vectors first: functional.normalize(images, dim=-1). Then take all dot products, divided by "
            "the temperature."
        ),
        "Row i's right answer is column i: functional.cross_entropy(logits, torch.arange(n)).",
        "Do the same with logits.T, and take the mean of the two.",
    ],
)


# The loss that cannot be zero.


def _caption_cases(draw: Inputs) -> Iterator[Case]:
    for name, number, size in (("a batch", 12, 4), ("a larger batch", 30, 7)):
        known = draw.ids(9, size, 5)
        known[:, 0] = 3  # all begin with the same word
        which = torch.cat([torch.tensor([0, 0, 0, 1]), draw.ids(size, number - 4)])
        yield Case(name, (known[which],))
    turned = torch.cat((known[:3], known[:3].flip(1)))  # the same words in another order
    yield Case("captions and their words in reverse", (turned,))
    yield Case("captions that all differ", (torch.arange(12).view(6, 2),), edge=True)
    yield Case("captions that are all alike", (known[:1].expand(7, -1),), edge=True)
    yield Case("a single caption", (known[:1],), edge=True)


def _equal(captions: Tensor) -> Tensor:
    """How many captions equal each one, itself included."""
    return (captions[:, None] == captions).all(-1).sum(1).float()


floor = Check(
    "floor",
    answer=lambda captions: _equal(captions).log().mean().item(),
    cases=_caption_cases,
    misconceptions=[
        Misconception(
            lambda captions: _equal(captions).mean().log(),
            "the logarithm is taken of the mean number of equal captions",
            "The loss of each picture is the logarithm of its own number of equal captions; the mean comes last.",
            _SPACE,
        ),
        Misconception(
            lambda captions: math.log(len(captions) / len(captions.unique(dim=0))),
            "the batch is divided by the number of different captions",
            "That would be right if all came equally often. Take each picture's own number.",
            _SPACE,
        ),
        Misconception(
            lambda captions: torch.stack(
                [n.log() for n in captions.unique(dim=0, return_counts=True)[1].float()]
            ).mean(),
            "each different caption is counted once",
            "The loss is a mean over pictures: a caption that occurs three times counts three times.",
            _SPACE,
        ),
        Misconception(
            lambda captions: (_equal(captions) - 1).clamp(min=1).log().mean(),
            "a caption is not counted as equal to itself",
            "With m equal captions, its own included, a perfect model gives each 1/m.",
            _SPACE,
        ),
        Misconception(
            lambda captions: (captions[:, None] == captions).any(-1).sum(1).float().log().mean(),
            "captions that share a word are called equal",
            "All their words must be equal.",
            _TRAINING,
        ),
        Misconception(
            lambda captions: _equal(captions).log2().mean(),
            "the logarithm is to base 2",
            "The loss is measured in nats: use the natural logarithm.",
            _SPACE,
        ),
        Misconception(
            lambda captions: _equal(captions).log().sum(),
            "the sum is taken instead of the mean",
            "The loss is a mean over the pictures of the batch.",
            _SPACE,
        ),
    ],
    hints=[
        "If a picture has m equal captions, the best it can do is to give each 1/m, and it loses log m.",
        "(captions[:, None] == captions).all(-1) compares all pairs. Count in each row.",
    ],
)


# Two objects exchange their colours.


def _scene_cases(draw: Inputs) -> Iterator[Case]:
    def scene(first: int, second: int, relation: tuple[str, ...]) -> tuple[str, ...]:
        shapes = [_SHAPES[i] for i in draw.uniform(len(_SHAPES)).argsort()[:2].tolist()]
        return (*_object(_COLOURS[first], shapes[0]), *relation, *_object(_COLOURS[second], shapes[1]))

    other = draw.whole(2, 4)
    yield Case("two objects", (scene(0, other, ("left", "of")),))
    yield Case("an orange object on the left", (scene(1, other, ("left", "of")),))
    yield Case("an orange object below", (scene(other, 1, ("above",)),))
    yield Case("two objects of one colour", (scene(0, 0, ("above",)),), edge=True)


def _object(colour: str, shape: str) -> tuple[str, str, str]:
    return ("an" if colour == "orange" else "a", colour, shape)


def _scene(
    caption: tuple[str, ...], take: tuple[int, int], *, mend: tuple[bool, bool] = (True, True)
) -> tuple[str, ...]:
    """The caption with the words at two given positions in place of the colours, and the articles corrected."""
    words = list(caption)
    for position, source, right in zip((1, -2), take, mend, strict=True):
        words[position] = caption[source]
        if right:
            words[position - 1] = "an" if caption[source] == "orange" else "a"
    return tuple(words)


exchanged = Check(
    "exchanged",
    answer=lambda caption: _scene(caption, (-2, 1)),
    cases=_scene_cases,
    misconceptions=[
        Misconception(
            lambda caption: _scene(caption, (-2, 1), mend=(False, False)),
            "the articles stay as they were",
            "It is an orange circle and a red one: the article goes with the colour.",
            _SENTENCE,
        ),
        Misconception(
            lambda caption: _scene(caption, (-2, -2)),
            "the first colour is overwritten before it has been read",
            "Both objects then have the second one's colour. Exchange the two at once: a, b = b, a.",
            _SENTENCE,
        ),
        Misconception(
            lambda caption: (*caption[:2], caption[-1], *caption[3:-1], caption[2]),
            "the shapes are exchanged",
            "Exchange the colours, and leave the shapes.",
            _SENTENCE,
        ),
        Misconception(
            lambda caption: (*caption[-3:], *caption[3:-3], *caption[:3]),
            "the whole objects are exchanged, with their shapes",
            "That describes another picture: exchange only the colours.",
            _SENTENCE,
        ),
        Misconception(
            lambda caption: _scene(caption, (-2, 1), mend=(True, False)),
            "only the first article is corrected",
            "Both objects have a new colour, so both articles may be wrong.",
            _SENTENCE,
        ),
    ],
    hints=[
        "Find the positions of the two colours, and exchange the words at these positions.",
        "The article is the word before a colour: an before orange, a before all others.",
    ],
)
