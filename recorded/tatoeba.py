"""Bahdanau's model on real sentences, beside d2l's at equal minutes.

All models see the same 20,000 pairs in the same vocabularies. Ours is trained for a number of epochs; each model of
d2l's classes then gets as many seconds as that took, by its own training loop. Needs d2l and the archive
(`ATTN_CORE_DATA`, or a download).
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from attn_book import tatoeba
from attn_book.companion import load_d2l
from attn_book.data import Batches, Corpus, Vocab, tokenize
from attn_book.metrics import bleu, exact_match
from attn_book.tatoeba import tatoeba_corpus
from attn_book.train import fit
from attn_book.translation import translate
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from benchmarks import d2l_translator
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
EPOCHS = 6
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
EMBED, HIDDEN = 128, 256
MAX_WORDS = 12
STEPS = MAX_WORDS + 1  # what d2l cuts and pads to: no sentence of these is cut
D2L_SIZES = {
    "d2l, its own sizes": {"embed_dim": 32, "hidden_dim": 32, "num_layers": 2, "dropout": 0.1},
    "d2l, our sizes": {"embed_dim": EMBED, "hidden_dim": HIDDEN, "num_layers": 1, "dropout": 0.2},
}
DEMONSTRATED = ("go .", "i lost .", "he's calm .", "i'm home .")
"""The sentences on which translators after d2l's chapter are usually shown."""
D2L_LINES = 601
"""How many lines of the file it trains on: with `num_examples=600` its loop stops after one more."""
SENTENCES = (
    "i do n't know where he lives .",
    "the children are sleeping in the garden .",
    "why did you not call me yesterday ?",
    "my sister has a red car .",
    "she did not want to give him the key .",
)


def vocabularies(data: Corpus) -> tuple[Vocab, Vocab]:
    """The words that occur at least twice in training, English and French."""
    return Vocab((p.source for p in data.train), min_count=2), Vocab((p.target for p in data.train), min_count=2)


def ours(data: Corpus, vocabs: tuple[Vocab, Vocab], seed: int) -> tuple[Seq2Seq, float]:
    """Our model, trained, and the seconds that it took."""
    torch.manual_seed(seed)
    encoder = Encoder(len(vocabs[0]), embed_dim=EMBED, hidden_dim=HIDDEN // 2, dropout=0.2)
    decoder = BahdanauDecoder(len(vocabs[1]), embed_dim=EMBED, hidden_dim=HIDDEN, memory_dim=HIDDEN, dropout=0.2)
    model = Seq2Seq(encoder, decoder)
    batches = Batches(data.train, *vocabs, batch_size=BATCH_SIZE, seed=seed)
    history = fit(model, batches, epochs=EPOCHS, learning_rate=LEARNING_RATE, seed=seed, progress=False)
    return model, history.seconds


def theirs(data: Corpus, vocabs: tuple[Vocab, Vocab], seed: int, sizes: dict[str, Any], seconds: float) -> Any:
    """A model of d2l's classes, trained for so many seconds, and the epochs that it saw."""
    d2l = load_d2l()
    torch.manual_seed(seed)
    model = d2l_translator.translator(d2l, len(vocabs[0]), len(vocabs[1]), **sizes)
    source = d2l_translator.padded([p.source for p in data.train], vocabs[0], STEPS)
    target = d2l_translator.padded([p.target for p in data.train], vocabs[1], STEPS)
    seen = 0

    def counted(loader: Any) -> Any:
        nonlocal seen
        for arrays in loader:
            seen += len(arrays[0])
            yield arrays

    class Loader:
        def __iter__(self) -> Any:
            return counted(d2l.load_array((*source, *target), BATCH_SIZE))

    d2l_translator.train(d2l, model, Loader(), epochs=10_000, seconds=seconds)
    return model, seen / len(data.train)


def scored(found: list[list[str]], data: Corpus) -> dict[str, float]:
    """BLEU and exact match in percent, on the test sentences."""
    wanted = [p.target for p in data.test]
    return {"bleu": bleu(found, wanted), "exact": 100 * exact_match(found, wanted)}


def lines_of(sentences: tuple[str, ...]) -> dict[str, Any]:
    """The line of the file at which a pair with this English sentence first stands, None where none does."""
    first: dict[tuple[str, ...], int] = {}
    for number, (english, _) in enumerate(tatoeba.lines(), start=1):
        first.setdefault(tokenize(english), number)
    return {text: first.get(tokenize(text)) for text in sentences}


def run(folder: Path) -> dict[str, Any]:
    """Our model and both of d2l's, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = tatoeba_corpus(max_words=MAX_WORDS)
    vocabs = vocabularies(data)
    sources = [p.source for p in data.test]
    shown = [tokenize(text) for text in (*DEMONSTRATED, *SENTENCES)]
    runs: list[dict[str, Any]] = []
    example: dict[str, Any] = {}
    for seed in SEEDS:
        model, seconds = ours(data, vocabs, seed)
        for beam_size in (1, 4):
            found = [t.words for t in translate(model, sources, *vocabs, beam_size=beam_size)]
            name = "ours" if beam_size == 1 else "ours, beam of 4"
            runs.append({"model": name, "seed": seed, "epochs": EPOCHS, "seconds": seconds, **scored(found, data)})
            print(runs[-1], flush=True)
        runs[-2]["parameters"] = sum(p.numel() for p in model.parameters())
        if seed == SEEDS[0]:
            translations = translate(model, shown, *vocabs, beam_size=4)
            example = {
                "translations": {" ".join(s): " ".join(t.words) for s, t in zip(shown, translations, strict=True)},
                "source": list(shown[-1]),
                "target": translations[-1].words,
                "weights": translations[-1].attention.tolist() if translations[-1].attention is not None else None,
            }
        for name, sizes in D2L_SIZES.items():
            peer, epochs = theirs(data, vocabs, seed, sizes, seconds)
            found = d2l_translator.translate(peer, sources, vocabs, num_steps=STEPS)
            size = sum(p.numel() for p in peer.parameters())
            runs.append(
                {"model": name, "seed": seed, "epochs": epochs, "seconds": seconds, **scored(found, data)}
                | {"parameters": size}
            )
            print(runs[-1], flush=True)
    unknown = [
        sum(word not in vocab for words in sentences for word in words) / sum(len(words) for words in sentences)
        for vocab, sentences in zip(vocabs, (sources, [p.target for p in data.test]), strict=True)
    ]
    known = {p.source for p in data.train}
    corpus = {
        "train": len(data.train),
        "test": len(data.test),
        "max_words": MAX_WORDS,
        "vocabularies": [len(vocab) for vocab in vocabs],
        "unknown_in_test": unknown,
        "shown_in_train": [" ".join(words) for words in shown if words in known],
    }
    demonstrated = {"lines": lines_of(DEMONSTRATED), "d2l_trains_on_lines_up_to": D2L_LINES}
    training: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
    training |= {"threads": 1, "d2l": version("d2l")}
    return rounded(
        {"training": training, "corpus": corpus, "demonstrated": demonstrated, "runs": runs, "example": example}
    )
