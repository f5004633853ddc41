"""Checks for the book's exercises and for attention layers, and broken attention layers to try them on."""

from attn_book.check.alignment import alignment_error, leak
from attn_book.check.biases import alibi_bias, relative_bias
from attn_book.check.broken_layers import SPECIMENS, StepByStep, reveal, specimen
from attn_book.check.buckets import met
from attn_book.check.cached import cached_attention, folded_bias
from attn_book.check.contexts import gated, prefix_context, sentence_context
from attn_book.check.decoders import bahdanau_context, local_weights
from attn_book.check.exercise import Case, Check, Inputs, Misconception, NotYet, hint
from attn_book.check.hard_attention import reinforce_gradient, reinforce_spread
from attn_book.check.heads import grouped_attention, multi_head
from attn_book.check.kernel_regression import leave_one_out, score_gradient
from attn_book.check.layer_tests import TESTS, symptoms
from attn_book.check.linear import by_chunks, read_on, series
from attn_book.check.paging import blocks_touched, gather_pages
from attn_book.check.pictures import clip_loss, exchanged, floor
from attn_book.check.pooling import dot_product_attention, edge_weights
from attn_book.check.positional import order_matrix, sinusoids
from attn_book.check.pretraining import hide_words, pseudo_log_likelihood
from attn_book.check.relative import rotary_scores
from attn_book.check.ring import zigzag
from attn_book.check.sampling import match_two, nucleus
from attn_book.check.softmax import softmax_backward, softmax_with_mask
from attn_book.check.sparse import layers_needed, pairs, pattern
from attn_book.check.tile_skipping import needed_tiles
from attn_book.check.tiles import merge, running_sums
from attn_book.check.translator import add_norm, beam_step, label_smoothing
from attn_book.check.word_vectors import ppmi

__all__ = [
    "SPECIMENS",
    "TESTS",
    "Case",
    "Check",
    "Inputs",
    "Misconception",
    "NotYet",
    "StepByStep",
    "add_norm",
    "alibi_bias",
    "alignment_error",
    "dot_product_attention",
    "bahdanau_context",
    "beam_step",
    "blocks_touched",
    "by_chunks",
    "cached_attention",
    "clip_loss",
    "edge_weights",
    "exchanged",
    "floor",
    "folded_bias",
    "gated",
    "gather_pages",
    "grouped_attention",
    "hide_words",
    "hint",
    "layers_needed",
    "leak",
    "leave_one_out",
    "local_weights",
    "softmax_with_mask",
    "match_two",
    "merge",
    "met",
    "multi_head",
    "needed_tiles",
    "nucleus",
    "order_matrix",
    "pairs",
    "pattern",
    "ppmi",
    "prefix_context",
    "pseudo_log_likelihood",
    "read_on",
    "reinforce_gradient",
    "reinforce_spread",
    "relative_bias",
    "reveal",
    "rotary_scores",
    "running_sums",
    "score_gradient",
    "sentence_context",
    "series",
    "sinusoids",
    "label_smoothing",
    "softmax_backward",
    "specimen",
    "symptoms",
    "zigzag",
]
