"""The translator built from d2l's classes: its decoder is the published one, its training and its output are d2l's."""

import torch
from torch import nn

from attn_book.corpus import corpus
from attn_book.data import Vocab
from benchmarks import d2l_translator

CPU = torch.device("cpu")
PAIRS = corpus(train=24, valid=0, test=0, structures=0, pronouns=0).train
VOCABS = Vocab(p.source for p in PAIRS), Vocab(p.target for p in PAIRS)


def arrays(num_steps=10):
    source = d2l_translator.padded([p.source for p in PAIRS], VOCABS[0], num_steps)
    return (*source, *d2l_translator.padded([p.target for p in PAIRS], VOCABS[1], num_steps))


def small(d2l, **options):
    torch.manual_seed(0)
    return d2l_translator.translator(d2l, *map(len, VOCABS), embed_dim=6, hidden_dim=8, **options)


class Words:
    """Our vocabulary with d2l's interface."""

    def __init__(self, vocab):
        self.vocab = vocab

    def __getitem__(self, words):
        if isinstance(words, list):
            return [self[word] for word in words]
        tokens = list(self.vocab.tokens)
        return tokens.index(words) if words in tokens else Vocab.UNK

    def to_tokens(self, ids):
        return [self.vocab.tokens[i] for i in ids]


def test_sentences_are_cut_and_padded_as_d2l_does_it(d2l):
    for sentences, vocab in (([p.source for p in PAIRS], VOCABS[0]), ([p.target for p in PAIRS], VOCABS[1])):
        wanted = d2l.build_array_nmt([list(words) for words in sentences], Words(vocab), 10)
        found = d2l_translator.padded(sentences, vocab, 10)
        assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1].long())


def test_the_decoder_is_the_published_one(d2l):
    model = small(d2l, dropout=0.0).double().eval()
    source, lengths, target, _ = arrays()
    logits, _ = model(source, target, lengths)
    weights = dict(model.named_parameters())

    def gru(prefix, layer, x, h):
        """The cell of the paper (Cho et al. 2014, with PyTorch's place of the reset gate)."""
        parts = [f"{prefix}.rnn.{kind}_l{layer}" for kind in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")]
        w, b, u, c = (weights[part] for part in parts)
        (xr, xz, xn), (hr, hz, hn) = (w @ x + b).chunk(3), (u @ h + c).chunk(3)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        return (1 - update) * torch.tanh(xn + reset * hn) + update * h

    for row in (0, 5):
        hidden = [torch.zeros(8, dtype=torch.float64) for _ in range(2)]
        memory = []
        for token in source[row]:  # as d2l does it, through the padding
            x = weights["encoder.embedding.weight"][token]
            for layer in (0, 1):
                x = hidden[layer] = gru("encoder", layer, x, hidden[layer])
            memory.append(x)
        memory = torch.stack(memory)
        for step, token in enumerate(target[row]):
            query = weights["decoder.attention.W_q.weight"] @ hidden[1]
            features = torch.tanh(query + memory @ weights["decoder.attention.W_k.weight"].T)
            scores = (features @ weights["decoder.attention.w_v.weight"].T)[: lengths[row], 0]
            context = scores.softmax(0) @ memory[: lengths[row]]
            x = torch.cat([context, weights["decoder.embedding.weight"][token]])
            for layer in (0, 1):
                x = hidden[layer] = gru("decoder", layer, x, hidden[layer])
            wanted = weights["decoder.dense.weight"] @ x + weights["decoder.dense.bias"]
            torch.testing.assert_close(logits[row, step], wanted)


def test_training_is_d2ls_own(d2l, monkeypatch):
    """`d2l.train_seq2seq` ends with the same weights, where its animator is muted and it keeps the first weights."""
    batches = [tuple(x[i : i + 8] for x in arrays()) for i in (0, 8, 16)]
    models = [small(d2l, dropout=0.1) for _ in range(2)]
    torch.manual_seed(1)
    d2l_translator.train(d2l, models[0], batches, epochs=2)
    monkeypatch.setattr(d2l, "Animator", lambda **settings: None)
    monkeypatch.setattr(nn.init, "xavier_uniform_", lambda weight: weight)
    torch.manual_seed(1)
    d2l.train_seq2seq(models[1], batches, 0.005, 2, Words(VOCABS[1]), CPU)
    first = small(d2l, dropout=0.1).state_dict()
    for name, weight in models[0].state_dict().items():
        torch.testing.assert_close(weight, models[1].state_dict()[name])
        assert not torch.equal(weight, first[name])


def test_batched_translation_is_d2ls_own_one_by_one(d2l):
    model = small(d2l, dropout=0.1)
    d2l_translator.train(d2l, model, [arrays()] * 40, epochs=1, learning_rate=0.02)
    sentences = [p.source for p in PAIRS]
    found = d2l_translator.translate(model, sentences, VOCABS, batch_size=7)
    words = [Words(vocab) for vocab in VOCABS]
    for sentence, translation in zip(sentences, found, strict=True):
        text, _ = d2l.predict_seq2seq(model, " ".join(sentence), *words, 10, CPU)
        assert translation == text.split()
    assert len({tuple(words) for words in found}) > 3 and any(len(words) < 10 for words in found)
