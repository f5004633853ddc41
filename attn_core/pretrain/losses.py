"""What pretraining and tuning make small, and how well they do."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import shown
from attn_core.data import Vocab
from attn_core.decode.hypothesis import evaluating
from attn_core.pretrain.batches import TextBatch
from attn_core.pretrain.models import Classifier, MaskedLanguageModel, NextSentenceModel


def masked_loss(model: nn.Module, batch: TextBatch) -> Tensor:
    """The mean cross-entropy of the hidden words, in nats; a scalar.

    Source: Devlin et al. 2018, section 3.1, task 1.
    """
    hidden = batch.target_out != Vocab.PAD
    logits = model(batch.source, batch.source_lengths, batch.segments, hidden)
    return functional.cross_entropy(logits.float(), batch.target_out[hidden])


def masked_and_next_loss(model: NextSentenceModel, batch: TextBatch) -> Tensor:
    """The mean cross-entropy of the hidden words, plus that of whether the second part follows, in nats; a scalar.

    Raises:
        ValueError: a text without a label, or with one of a class that the model has not.

    Source: Devlin et al. 2018, section 3.1.
    """
    hidden = batch.target_out != Vocab.PAD
    words, follows = model.both(batch.source, batch.source_lengths, batch.segments, hidden)
    _check_labels(batch, follows)
    loss = functional.cross_entropy(words.float(), batch.target_out[hidden])
    return loss + functional.cross_entropy(follows.float(), batch.labels)


def class_loss(model: nn.Module, batch: TextBatch) -> Tensor:
    """The mean cross-entropy of the texts' classes, in nats; a scalar.

    Raises:
        ValueError: a text without a label, or with one of a class that the model has not.
    """
    logits = model(batch.source, batch.source_lengths, batch.segments, batch.at)
    _check_labels(batch, logits)
    return functional.cross_entropy(logits.float(), batch.labels)


@torch.no_grad()
def masked_scores(model: MaskedLanguageModel, batches: Iterable[TextBatch]) -> dict[str, float]:
    """``loss``, the mean over all hidden words in nats, and ``accuracy``, the share of them restored.

    Of a ``NextSentenceModel`` and labelled texts also ``follows``, the share of texts whose parts it judges rightly.
    The model is run in evaluation mode and left in the mode it was in.
    """
    loss, right, words, judged, texts = 0.0, 0, 0, 0, 0
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in (batch.to(device) for batch in batches):
            hidden = batch.target_out != Vocab.PAD
            wanted = batch.target_out[hidden]
            x = model.encoder(batch.source, batch.source_lengths, batch.segments)
            logits = model.word_logits(x[hidden])
            loss += functional.cross_entropy(logits, wanted, reduction="sum").item()
            right += int((logits.argmax(-1) == wanted).sum())
            words += len(wanted)
            if isinstance(model, NextSentenceModel):
                known = batch.labels >= 0
                judged += int((model.follows(x[known, 0]).argmax(-1) == batch.labels[known]).sum())
                texts += int(known.sum())
    found = {"loss": loss / words, "accuracy": right / words}
    return found | ({"follows": judged / texts} if texts else {})


@torch.no_grad()
def class_logits(model: Classifier, batches: Iterable[TextBatch]) -> Tensor:
    """The logits ``(N, classes)`` of all texts in the order of the batches, on the CPU.

    The model is run in evaluation mode and left in the mode it was in.
    """
    device = next(model.parameters()).device
    with evaluating(model):
        found = [model(b.source, b.source_lengths, b.segments, b.at) for b in (b.to(device) for b in batches)]
    return torch.cat(found).cpu()


def _check_labels(batch: TextBatch, logits: Tensor) -> None:
    # On a GPU this would wait for the device at every step, and the loss's own check speaks there.
    if batch.labels.device.type == "cpu" and bool((batch.labels < 0).any()):
        raise ValueError(f"batch: expected a label for each text, got {shown(batch.labels.tolist())}")
    if batch.labels.device.type == "cpu" and int(batch.labels.max()) >= logits.shape[-1]:
        raise ValueError(f"batch: expected labels below the {logits.shape[-1]} classes, got {int(batch.labels.max())}")
