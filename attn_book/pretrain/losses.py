"""The losses of pretraining and tuning, and how well the models do."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.data import Vocab
from attn_book.pretrain.batches import MaskedBatch, TextBatch
from attn_book.pretrain.models import Classifier, MaskedLanguageModel, NextSentenceModel
from attn_book.train.losses import needs_whole_batch, token_loss
from attn_core.contract import accum_dtype
from attn_core.evaluation import evaluating


def masked_loss(model: nn.Module, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the hidden tokens, summed, in nats, and their number.

    Source: Devlin et al. 2018, section 3.1, task 1.
    """
    hidden = batch.target_out != Vocab.PAD
    logits = model(batch.source, batch.source_lengths, batch.segments, hidden)
    return token_loss(logits, batch.target_out[hidden], padding_id=None)


@needs_whole_batch
def masked_and_next_loss(model: NextSentenceModel, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of the hidden tokens plus that of whether the second part follows, in nats.

    The two are means over different numbers, so their sum is given times the number of hidden tokens, and that number.

    Source: Devlin et al. 2018, section 3.1.
    """
    hidden = batch.target_out != Vocab.PAD
    logits, follows = model.both(batch.source, batch.source_lengths, batch.segments, hidden)
    loss, count = token_loss(logits, batch.target_out[hidden], padding_id=None)
    return loss + count * functional.cross_entropy(follows.to(accum_dtype(follows)), batch.labels), count


def class_loss(model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
    """The cross-entropy of the texts' classes, summed, in nats, and the number of texts."""
    logits = model(batch.source, batch.source_lengths, batch.segments, batch.at)
    return functional.cross_entropy(logits.to(accum_dtype(logits)), batch.labels, reduction="sum"), len(batch)


@torch.no_grad()
def masked_scores(model: MaskedLanguageModel, batches: Iterable[MaskedBatch]) -> dict[str, float]:
    """The mean ``loss`` over all hidden tokens, in nats, and ``accuracy``, the share of them restored.

    For a ``NextSentenceModel`` and labelled texts also ``follows``, the share of texts whose parts it judges rightly.
    The model is run in evaluation mode and left in the mode it was in.
    """
    loss, correct, tokens, judged, texts = 0.0, 0, 0, 0, 0
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in (batch.to(device) for batch in batches):
            hidden = batch.target_out != Vocab.PAD
            target = batch.target_out[hidden]
            x = model.encoder(batch.source, batch.source_lengths, batch.segments)
            logits = model.word_logits(x[hidden])
            loss += token_loss(logits, target, padding_id=None)[0].item()
            correct += int((logits.argmax(-1) == target).sum())
            tokens += len(target)
            if isinstance(model, NextSentenceModel):
                labelled = batch.labels >= 0
                judged += int((model.follows(x[labelled, 0]).argmax(-1) == batch.labels[labelled]).sum())
                texts += int(labelled.sum())
    if not tokens:
        raise ValueError("batches: expected at least one hidden token, got none")
    return {"loss": loss / tokens, "accuracy": correct / tokens} | ({"follows": judged / texts} if texts else {})


@torch.no_grad()
def class_logits(model: Classifier, batches: Iterable[TextBatch]) -> Tensor:
    """The logits ``(N, classes)`` of all texts in the order of the batches, on the CPU.

    The model is run in evaluation mode and left in the mode it was in.
    """
    device = next(model.parameters()).device
    with evaluating(model):
        logits = [model(b.source, b.source_lengths, b.segments, b.at) for b in (b.to(device) for b in batches)]
    if not logits:
        raise ValueError("batches: expected at least one, got none")
    return torch.cat(logits).cpu()
