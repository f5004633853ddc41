"""Pretraining on plain text: hidden words, next sentences, next tokens; then tuning, and vectors of sentences."""

from attn_book.data.vocab import PretrainingVocab
from attn_book.pretrain.batches import LabelledBatches, MaskedBatches, Text, TextBatch, pack, whole_texts
from attn_book.pretrain.losses import class_logits, class_loss, masked_and_next_loss, masked_loss, masked_scores
from attn_book.pretrain.masking import mask_tokens
from attn_book.pretrain.models import (
    ClassHead,
    Classifier,
    MaskedLanguageModel,
    NextSentenceModel,
    frozen_from,
    tuned_from,
)
from attn_book.pretrain.stream import StreamBatch, StreamBatches, next_token_loss

__all__ = [
    "ClassHead",
    "Classifier",
    "LabelledBatches",
    "MaskedBatches",
    "MaskedLanguageModel",
    "NextSentenceModel",
    "PretrainingVocab",
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
