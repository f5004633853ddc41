"""Wrong input of the book's own tools: the error is a ValueError that begins with the argument's name."""

import pytest
import torch

from attn_book import plots
from attn_book.alignment import alignment_error, diagonal_guess
from attn_book.captioner import ImageEncoder
from attn_book.check.broken_layers import specimen
from attn_book.context import DynamicContext
from attn_book.context.encoder import ContextEncoder
from attn_book.corpus import DrawingBatches, draw_scenes, plausible_sentences
from attn_book.data import Batches, Pair, Vocab, tokenize
from attn_book.data.vocab import PretrainingVocab
from attn_book.induction import (
    AttentionOnly,
    best_losses,
    next_token_losses,
)
from attn_book.maps import read_links, read_maps, read_tokens
from attn_book.metrics import bleu, exact_match
from attn_book.microscope import cut_heads, duplicate_scores, first_token_scores, rotary_parts
from attn_book.pretrain import MaskedBatches, StreamBatches, Text, whole_texts
from attn_book.tables import Table
from attn_book.train import token_loss
from attn_core import MultiHeadAttention
from attn_core.transformer import LanguageModel, TransformerConfig

ONE, MAPS, IMAGES = torch.ones(1, 1), torch.full((1, 1, 1, 2, 2), 0.5), torch.rand(2, 3, 8, 8)
PATCHES, TOKENS = torch.ones(2, 4, dtype=torch.bool), torch.tensor([[4, 5, 6], [7, 4, 0]])
WEIGHTS, BY = torch.rand(4, 3).softmax(-1), torch.Generator()
DRAWN, WORDS, PRETRAINING = draw_scenes(2), Vocab([("a", "b")]), PretrainingVocab([("a", "b")])
ONE_TEXT = whole_texts([("a",)])
PAIRS = [Pair(("a",), ("b",))]
CONFIG = TransformerConfig(11, model_dim=8, num_heads=2, num_layers=1, feed_forward_dim=12, dropout=0.0)


def heatmap(**changed):
    return plots.heatmap(**{"weights": WEIGHTS, "source": "the black cat".split(), "target": list("abcd")} | changed)


def drawings(**changed):
    return DrawingBatches(DRAWN, Vocab(DRAWN.captions), **{"batch_size": 1} | changed)


def batches(**changed):
    usual = {"pairs": PAIRS, "source_vocab": WORDS, "target_vocab": WORDS, "batch_size": 2}
    return Batches(**usual | changed)


def stream(texts=(("a",) * 9,), **changed):
    return StreamBatches(texts, PRETRAINING, **{"batch_size": 2, "length": 8} | changed)


def masked(texts=ONE_TEXT, **changed):
    return MaskedBatches(texts, PRETRAINING, **{"batch_size": 2, "seed": 0} | changed)


def encoded(form, *arguments):
    return ContextEncoder(CONFIG, form)(*arguments)


def entered(block):
    with block:
        pass


REFUSED = [
    ("attentions", lambda: alignment_error([], [])),
    ("attentions", lambda: alignment_error([ONE[0]], [{(0, 0)}])),
    ("attentions", lambda: alignment_error([ONE * torch.nan], [{(0, 0)}])),
    ("attentions", lambda: alignment_error([[[1.0]]], [{(0, 0)}])),
    ("links", lambda: alignment_error([ONE], [])),
    ("links", lambda: alignment_error([ONE], [[0, 1]])),
    ("links", lambda: alignment_error([ONE], [{(0, -1)}])),
    ("links", lambda: alignment_error([ONE], [set()])),
    ("source_length", lambda: diagonal_guess(2.5, 3)),
    ("target_length", lambda: diagonal_guess(3, 0)),
    ("images", lambda: ImageEncoder(image_size=24, memory_dim=4)(IMAGES, torch.tensor([4, 4]))),
    ("number", lambda: specimen(11)),
    ("model_dim", lambda: DynamicContext(0)),
    ("tokens", lambda: encoded(DynamicContext, TOKENS + 5, torch.tensor([3, 2]), TOKENS * 0)),
    ("lengths", lambda: encoded(DynamicContext, TOKENS, torch.tensor([3, 4]), TOKENS * 0)),
    ("sentence_numbers", lambda: encoded(DynamicContext, TOKENS, torch.tensor([3, 2]), TOKENS[:, :2] * 0)),
    ("objects", lambda: draw_scenes(2, objects=9, distractors=8)),
    ("patch_size", lambda: DRAWN.links(7)),
    ("patch_size", lambda: drawings(patch_size=0)),
    ("seed", lambda: drawings(seed=-1)),
    ("paragraphs", lambda: plausible_sentences(["a cat"])),
    ("without", lambda: plausible_sentences([], without=[("a", "cat")])),
    ("source", lambda: Pair((), ("x",))),
    ("source", lambda: Pair(["a"], ("x",))),
    ("target", lambda: Pair(("a",), ("",))),
    ("links", lambda: Pair(("a",), ("x",), frozenset({(1, 0)}))),
    ("links", lambda: Pair(("a",), ("x",), [(0, 0)])),
    ("sentences", lambda: Vocab([])),
    ("sentences", lambda: Vocab(["ab"])),
    ("min_count", lambda: Vocab([("a",)], min_count=True)),
    ("sentences", lambda: Vocab(None)),
    ("sentences", lambda: Vocab([("a", "")])),
    ("sentences", lambda: Vocab([b"abc"])),
    ("min_count", lambda: Vocab([("a",)], min_count=0)),
    ("tokens", lambda: WORDS.encode("a")),
    ("tokens", lambda: WORDS.encode(None)),
    ("tokens", lambda: WORDS.encode([])),
    ("tokens", lambda: WORDS.encode(["a", ""])),
    ("ids", lambda: WORDS.decode([9])),
    ("ids", lambda: WORDS.decode([-1])),
    ("text", lambda: tokenize(b"a b")),
    ("number", lambda: batches(seed=0).epoch(-1)),
    ("model_dim", lambda: AttentionOnly(7, model_dim=6, num_heads=2, num_layers=1)),
    ("tokens", lambda: AttentionOnly(7, model_dim=8, num_heads=2, num_layers=1)(torch.tensor([[0, 7]]))),
    ("tokens", lambda: best_losses(torch.arange(6)[None], 6, piece=(2, 3))),
    ("tokens", lambda: next_token_losses(torch.zeros(2, 11, 7), torch.zeros(2, 12, dtype=torch.long))),
    ("heads", lambda: entered(cut_heads(LanguageModel(CONFIG), [(1, 0)]))),
    ("tokens", lambda: duplicate_scores(torch.rand(1, 2, 3, 3), torch.arange(3)[None])),
    ("tokens", lambda: duplicate_scores(torch.rand(1, 2, 3, 3), torch.arange(2)[None])),
    ("weights", lambda: first_token_scores(torch.rand(1, 2, 1, 1))),
    ("layer", lambda: rotary_parts(MultiHeadAttention(8, 2), torch.zeros(1, 3, 8))),
    ("source", lambda: read_tokens("a b", "source", 2)),
    ("source", lambda: read_tokens(["a"], "source", 2)),
    ("links", lambda: read_links([(0, 3)], ["a", "b"], ["x", "y", "z"])),
    ("links", lambda: heatmap(links=[(3, 0)])),
    ("source", lambda: heatmap(source=["a"])),
    ("weights", lambda: heatmap(weights=WEIGHTS - 1)),
    ("title", lambda: heatmap(title=b"t")),
    ("weights", lambda: heatmap(weights=torch.rand(2, 4, 3))),
    ("table", lambda: plots.positional_matrix(None, [1.0, 2.0])),
    ("pair", lambda: plots.positional_pair(None, WEIGHTS, -1)),
    ("rows", lambda: Table(["a", "b"], [["x"]])),
    ("hypotheses", lambda: bleu([], [])),
    ("references", lambda: bleu([["a"]], [])),
    ("hypotheses", lambda: bleu("a", [["a"]])),
    ("hypotheses", lambda: bleu([[1, 2]], [["a"]])),
    ("references", lambda: bleu([["a"]], [[["a"], ["b"]]])),
    ("hypotheses", lambda: exact_match([None], [["a"]])),
    ("references", lambda: exact_match([["ab"]], ["ab"])),
    ("texts", lambda: masked(lambda n: [Text(("a",))] * (n + 1)).epoch(1)),
    ("number", lambda: stream().epoch(True)),
    ("logits", lambda: token_loss(torch.ones(2, 5, dtype=torch.int64), torch.tensor([1, 2]))),
    ("target", lambda: token_loss(torch.randn(2, 5), torch.tensor([1, 5]))),
    ("target", lambda: token_loss(torch.randn(2, 3, 5), torch.ones(3, 2, dtype=torch.long))),
    ("padding_id", lambda: token_loss(torch.randn(2, 5), torch.tensor([1, 2]), padding_id=True)),
]


@pytest.mark.parametrize(("name", "call"), REFUSED)
def test_wrong_input_is_named(name, call):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        call()


WRONG_MAPS = {
    "got shape": torch.ones(3),
    "at least one": torch.ones(0, 3),
    "finite": WEIGHTS * torch.inf,
    "not negative": -WEIGHTS,
    "expected numbers": "attention",
    "eager": None,
    "got a batch of 4; pick item i": [torch.rand(4, 2, 3, 5)],
    "same .* in every layer": [torch.rand(2, 3, 5), torch.rand(2, 3, 4)],
    "show each kind by itself": {"enc": [torch.rand(1, 2, 3, 5)], "dec": [torch.rand(1, 2, 3, 4)]},
    "capture one pass": {"a": [torch.rand(1, 2, 3, 5)] * 2},
    "same heads and keys at each step": [[torch.rand(2, 1, 5)], [torch.rand(2, 1, 4)]],
    "as many layers at each step": [[torch.rand(2, 1, 5)], [torch.rand(2, 1, 5)] * 2],
}


@pytest.mark.parametrize("said", WRONG_MAPS)
def test_what_is_no_map_is_refused_with_what_to_do(said):
    with pytest.raises(ValueError, match=said):
        read_maps(WRONG_MAPS[said])
