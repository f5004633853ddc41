"""Checks: of what a reader wrote for an exercise, and of attention layers; and broken layers to try them on."""

from attn_core.check.alignment import alignment_error, leak
from attn_core.check.biases import alibi_bias, relative_bias
from attn_core.check.buckets import k_means, met
from attn_core.check.choice import reinforce_gradient, reinforce_spread
from attn_core.check.contexts import bilinear, gated, prefix_context, sentence_context
from attn_core.check.continued import cached_attention, folded_bias
from attn_core.check.decoders import bahdanau_context, local_weights
from attn_core.check.exercise import Case, Check, Inputs, Misconception, NotYet, hint
from attn_core.check.heads import grouped_attention, multi_head
from attn_core.check.layer_tests import TESTS, symptoms
from attn_core.check.linear import by_chunks, read_on, series
from attn_core.check.pages import blocks_touched, gather_pages
from attn_core.check.pictures import contrastive_loss, exchanged, floor
from attn_core.check.places import order_matrix, sinusoids
from attn_core.check.pooling import attention, edge_weights, find_beta
from attn_core.check.pretraining import hide_words, pseudo_log_likelihood
from attn_core.check.readings import leave_one_out, score_gradient
from attn_core.check.relative import rotary_scores
from attn_core.check.skipping import causal_tiles, needed_tiles, windowed
from attn_core.check.softmax import masked_softmax, softmax_backward
from attn_core.check.sparse import layers_needed, pairs, pattern
from attn_core.check.tiles import merge, running_sums
from attn_core.check.translator import add_norm, beam_step, smoothed_loss
from attn_core.check.word_vectors import ppmi
from attn_core.check.writing import match_two, nucleus
from attn_core.check.zoo import SPECIMENS, StepByStep, reveal, specimen

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
    "attention",
    "bahdanau_context",
    "beam_step",
    "bilinear",
    "blocks_touched",
    "by_chunks",
    "cached_attention",
    "causal_tiles",
    "contrastive_loss",
    "edge_weights",
    "exchanged",
    "find_beta",
    "floor",
    "folded_bias",
    "gated",
    "gather_pages",
    "grouped_attention",
    "hide_words",
    "hint",
    "k_means",
    "layers_needed",
    "leak",
    "leave_one_out",
    "local_weights",
    "masked_softmax",
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
    "smoothed_loss",
    "softmax_backward",
    "specimen",
    "symptoms",
    "windowed",
]
