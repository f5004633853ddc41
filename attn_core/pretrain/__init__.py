"""Pretraining on plain text: hidden words, next sentences, next tokens; then tuning, and vectors of sentences."""

from attn_core.data.vocab import PretrainingVocab
from attn_core.pretrain.batches import (
    LabelledBatches,
    MaskedBatches,
    Text,
    TextBatch,
    pack,
    whole_texts,
)
from attn_core.pretrain.losses import class_logits, class_loss, masked_and_next_loss, masked_loss, masked_scores
from attn_core.pretrain.masking import mask_tokens
from attn_core.pretrain.models import (
    ClassHead,
    Classifier,
    MaskedLanguageModel,
    NextSentenceModel,
    SegmentEncoder,
    frozen_from,
    tuned_from,
)
from attn_core.pretrain.stream import StreamBatch, StreamBatches, next_token_loss

__all__ = [
    "ClassHead",
    "Classifier",
    "LabelledBatches",
    "MaskedBatches",
    "MaskedLanguageModel",
    "NextSentenceModel",
    "PretrainingVocab",
    "SegmentEncoder",
    "StreamBatch",
    "StreamBatches",
    "Text",
    "TextBatch",
    "class_logits",
    "class_loss",
    "frozen_from",
    "mask_tokens",
    "masked_and_next_loss",
    "masked_loss",
    "masked_scores",
    "next_token_loss",
    "pack",
    "tuned_from",
    "whole_texts",
]
