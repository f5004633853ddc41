"""Encoder, heads and losses against arithmetic written out; tuning and freezing; training by `fit`."""

import pytest
import torch
from torch.nn import functional

from attn_book.corpus import next_sentence_texts, paragraph_corpus, two_part_texts
from attn_book.data import Vocab
from attn_book.data.vocab import PretrainingVocab
from attn_book.pretrain import (
    Classifier,
    LabelledBatches,
    MaskedBatches,
    MaskedLanguageModel,
    NextSentenceModel,
    StreamBatches,
    Text,
    class_logits,
    class_loss,
    frozen_from,
    masked_and_next_loss,
    masked_loss,
    masked_scores,
    next_token_loss,
    tuned_from,
)
from attn_book.retrieval import retrieval_accuracy, text_vectors
from attn_book.train import fit
from attn_core.transformer import LanguageModel, SegmentEncoder, TransformerConfig, TransformerEncoder

PARAGRAPHS = paragraph_corpus(train=40, valid=0, test=0).train
VOCAB = PretrainingVocab(p.source for p in PARAGRAPHS)
CONFIG = TransformerConfig(len(VOCAB), model_dim=16, num_heads=2, num_layers=2, feed_forward_dim=24, dropout=0.0)
LABELLED = LabelledBatches(
    [Text(p.source, label=i % 3, at=i % 4) for i, p in enumerate(PARAGRAPHS)], VOCAB, batch_size=16
)


@pytest.fixture
def batch():
    return next(MaskedBatches(next_sentence_texts(PARAGRAPHS), VOCAB, batch_size=6, seed=0).epoch(0))


def test_segments_are_added_to_what_the_encoder_reads(batch):
    torch.manual_seed(1)
    encoder = SegmentEncoder(CONFIG)
    plain = TransformerEncoder(CONFIG)
    plain.load_state_dict({k: v for k, v in encoder.state_dict().items() if k != "segments.weight"})
    seen = batch.source, batch.source_lengths
    with torch.no_grad():
        encoder.segments.weight.zero_()
    torch.testing.assert_close(encoder(*seen, batch.segments), plain(*seen))
    with torch.no_grad():  # now each part's vector added by hand, where the plain encoder embeds
        encoder.segments.weight.normal_()
        hook = plain.embedding.register_forward_hook(lambda *call: call[2] + encoder.segments.weight[batch.segments])
    torch.testing.assert_close(encoder(*seen, batch.segments), plain(*seen))
    hook.remove()
    torch.testing.assert_close(encoder(*seen), encoder(*seen, torch.zeros_like(batch.segments)))


def test_padding_changes_nothing(batch):
    encoder = SegmentEncoder(CONFIG)
    row = int(batch.source_lengths.argmin())
    n = int(batch.source_lengths[row])
    assert n < batch.source.shape[1]
    alone = encoder(batch.source[row : row + 1, :n], torch.tensor([n]), batch.segments[row : row + 1, :n])
    torch.testing.assert_close(encoder(batch.source, batch.source_lengths, batch.segments)[row, :n], alone[0])


def test_heads_by_hand(batch):
    model = NextSentenceModel(SegmentEncoder(CONFIG))
    torch.nn.init.normal_(model.bias)
    hidden = batch.target_out != Vocab.PAD
    x = model.encoder(batch.source, batch.source_lengths, batch.segments)
    every = functional.gelu(x @ model.dense.weight.T + model.dense.bias)
    every = (every - every.mean(-1, keepdim=True)) / (every.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    every = every @ model.encoder.embedding.tokens.weight.T + model.bias
    head = model.follows
    follows = torch.tanh(x[:, 0] @ head.dense.weight.T + head.dense.bias) @ head.out.weight.T + head.out.bias
    words, judged = model.both(batch.source, batch.source_lengths, batch.segments, hidden)
    torch.testing.assert_close(words, every[hidden])
    torch.testing.assert_close(judged, follows)
    torch.testing.assert_close(model(batch.source, batch.source_lengths, batch.segments, hidden), words)
    rows, places = hidden.nonzero(as_tuple=True)
    surprise = -every.log_softmax(-1)[rows, places, batch.target_out[rows, places]].mean()
    loss, count = masked_loss(model, batch)
    torch.testing.assert_close(loss / count, surprise)
    assert count == hidden.sum()
    wrong = -follows.log_softmax(-1)[torch.arange(len(batch)), batch.labels].mean()
    loss, count = masked_and_next_loss(model, batch)
    torch.testing.assert_close(loss / count, surprise + wrong)
    assert count == hidden.sum()


def test_scores_are_over_all_words_and_texts():
    model = NextSentenceModel(SegmentEncoder(CONFIG))
    (whole,) = MaskedBatches(next_sentence_texts(PARAGRAPHS), VOCAB, batch_size=40, seed=None)
    parts = [whole.rows(slice(0, 3)), whole.rows(slice(3, None))]
    hidden = whole.target_out != Vocab.PAD
    with torch.no_grad():
        words, follows = model.both(whole.source, whole.source_lengths, whole.segments, hidden)
    found = masked_scores(model.train(), parts)
    assert found["loss"] == pytest.approx(functional.cross_entropy(words, whole.target_out[hidden]).item(), rel=1e-5)
    assert found["accuracy"] == pytest.approx((words.argmax(-1) == whole.target_out[hidden]).float().mean().item())
    assert found["follows"] == pytest.approx((follows.argmax(-1) == whole.labels).float().mean().item())
    assert model.training
    assert masked_scores(MaskedLanguageModel(model.encoder), parts).keys() == {"loss", "accuracy"}


def test_a_classifier_reads_the_token_that_it_is_told():
    model = Classifier(SegmentEncoder(CONFIG), 3)
    logits = class_logits(model, LABELLED)
    assert logits.shape == (40, 3)
    row = 0
    for batch in LABELLED:
        x = model.encoder(batch.source, batch.source_lengths, batch.segments)
        for i in range(len(batch)):
            torch.testing.assert_close(logits[row], model.head(x[i, row % 4]), atol=1e-5, rtol=1e-5)
            row += 1
    every = logits.log_softmax(-1)[torch.arange(16), torch.arange(16) % 3]
    loss, count = class_loss(model, next(iter(LABELLED)))
    torch.testing.assert_close(loss, -every.sum())
    assert count == 16


@pytest.mark.parametrize(("make", "frozen"), [(tuned_from, False), (frozen_from, True)])
def test_tuning_changes_a_copy_and_frozen_weights_stay(make, frozen):
    encoder = SegmentEncoder(CONFIG)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    model = make(encoder, 3)
    head = model.head.out.weight.detach().clone()
    fit(model, LABELLED, epochs=1, loss=class_loss, device="cpu", progress=False)
    after = model.encoder.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert not torch.equal(model.head.out.weight, head)
    assert (changed == []) if frozen else (len(changed) > 20)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert all(p.requires_grad for p in encoder.parameters())


@pytest.mark.parametrize(
    ("model", "loss", "batches"),
    [
        (MaskedLanguageModel, masked_loss, MaskedBatches(two_part_texts(PARAGRAPHS), VOCAB, batch_size=8, seed=0)),
        (
            NextSentenceModel,
            masked_and_next_loss,
            MaskedBatches(next_sentence_texts(PARAGRAPHS), VOCAB, batch_size=8, seed=0),
        ),
        (None, next_token_loss, StreamBatches([p.source for p in PARAGRAPHS], VOCAB, batch_size=8, length=16, seed=0)),
    ],
    ids=["masked", "masked and next", "next token"],
)
def test_fit_trains_and_goes_on_from_a_checkpoint(model, loss, batches, tmp_path):
    def made():
        torch.manual_seed(0)
        return LanguageModel(CONFIG) if model is None else model(SegmentEncoder(CONFIG))

    one, two = made(), made()
    options = {"epochs": 4, "learning_rate": 1e-2, "loss": loss, "device": "cpu", "progress": False}
    history = fit(one, batches, **options)
    assert sum(history.losses[-5:]) / 5 < history.losses[0] - 0.7

    calls = []

    def stopping(model, batch):
        calls.append(batch)
        if len(calls) == 2 * len(batches):  # in the middle of the run, and of what stands between two checkpoints
            raise KeyboardInterrupt
        return loss(model, batch)

    options |= {"checkpoint": tmp_path / "run", "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        fit(two, batches, **options | {"loss": stopping})
    two = made()
    fit(two, batches, **options)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("loss", [masked_loss, class_loss, next_token_loss])
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(loss, batch):
    encoder = SegmentEncoder(CONFIG)
    models = {masked_loss: MaskedLanguageModel(encoder), class_loss: Classifier(encoder, 2)}
    model = models.get(loss) or LanguageModel(CONFIG)
    if loss is next_token_loss:
        (batch, *_) = StreamBatches([p.source for p in PARAGRAPHS], VOCAB, batch_size=6, length=12)
    whole, parts = loss(model, batch), [loss(model, batch.rows(rows)) for rows in (slice(0, 2), slice(2, None))]
    torch.testing.assert_close(whole[0], parts[0][0] + parts[1][0])
    assert whole[1] == parts[0][1] + parts[1][1]


def test_text_vectors_are_each_texts_own():
    torch.manual_seed(2)
    encoder = SegmentEncoder(CONFIG)
    texts = [p.source for p in PARAGRAPHS[:7]]
    found = text_vectors(encoder, texts, VOCAB, batch_size=3)
    assert found.shape == (3, 7, 16)
    for i, words in enumerate(texts):
        tokens = torch.tensor([[VOCAB.CLS, *VOCAB.encode(words), VOCAB.SEP]])
        for layer, x in enumerate(encoder.states(tokens, torch.tensor([tokens.shape[1]]))):
            torch.testing.assert_close(found[layer, i], x[0, 1:-1].mean(0), atol=1e-5, rtol=1e-5)


def test_retrieval_counts_the_queries_whose_own_is_nearest_by_cosine():
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    candidates = torch.tensor([[9.0, 1.0], [1.0, 9.0], [0.0, 0.1]])
    assert retrieval_accuracy(queries, candidates) == pytest.approx(1 / 3)  # the second's nearest is the third
