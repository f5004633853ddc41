"""The table of hostile inputs, collected; and the inputs that are odd but legitimate, with what has to come out."""

import json
import math
import os
import tracemalloc
import unicodedata
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

import attn_core
from attn_book import tatoeba
from attn_book.alignment import alignment_error
from attn_book.data import Pair, Vocab, tokenize
from attn_book.maps import read_maps
from attn_book.metrics import bleu, exact_match
from attn_book.plots import heatmap
from attn_book.train import cosine
from attn_book.train.checkpoint import Checkpoint, load, save
from attn_book.widgets import AttentionHeatmap, Quiz
from attn_core import KVCache, MultiHeadAttention, attention, attention_with_weights, masks
from attn_core.cache import BlockPool, OutOfBlocks, as_tensors, paged_attention
from attn_core.decode import Sampler, generate, top_k, top_p
from attn_core.positions import ALiBi, Sinusoidal, sinusoidal
from tests.hostile import models, tensors, texts
from tests.hostile.row import Odd
from tests.hostile.tensors import filled, inputs, numbers, read, started, whole
from tests.properties.mechanisms import MECHANISMS

AREAS = {
    "the contract": tensors.CONTRACT,
    "mechanisms": tensors.SETTINGS,
    "masks and positions": tensors.PLACES,
    "layers and caches": tensors.LAYERS,
    "the paged cache": tensors.PAGED,
    "models": models.MODELS,
    "images": models.PICTURES,
    "pretraining": models.PRETRAINING,
    "training": models.TRAINING,
    "decoding": models.DECODING,
    "scores": texts.SCORES,
    "text": texts.TEXT,
    "widgets and plots": texts.WIDGETS,
    "checkpoints": texts.CHECKPOINTS,
    "archives": texts.ARCHIVES,
    "JSON": texts.JSON,
}
CASES = [row for rows in AREAS.values() for row in rows]
ODD: list[Odd] = []


def odd(name):
    """Put a check into the list."""

    def kept(check):
        ODD.append(Odd(name, check))
        return check

    return kept


def near(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    return True


def every_mechanism(**others):
    """Each mechanism's name, and what it gives for these inputs."""
    for name, mechanism in MECHANISMS.items():
        given = inputs(**others)
        if mechanism.draws.get("shared"):
            given["q"] = given["k"]
        yield name, mechanism.made_for(**given)(**given)


@odd("every mechanism: a batch of none")
def _(folder):
    for name, found in every_mechanism(q=numbers(0, 4, 3, 8), k=numbers(0, 2, 3, 8), v=numbers(0, 2, 3, 6)):
        assert found.shape[0] == 0 and found.shape[2:] == (3, 6), name


@odd("every mechanism: values of no size")
def _(folder):
    for name, found in every_mechanism(v=numbers(2, 4, 3, 0), k=numbers(2, 4, 3, 8)):
        assert found.shape == (2, 4, 3, 0), name


@odd("every mechanism: a sequence of one token")
def _(folder):
    for name, found in every_mechanism(q=numbers(1, 4, 1, 8), k=numbers(1, 2, 1, 8), v=numbers(1, 2, 1, 6)):
        if not name.startswith(("Linformer", "SinkAttention")):  # a slot scales it, a sink takes a part of the weight
            heads = found.shape[1]
            assert near(found, numbers(1, 2, 1, 6).repeat_interleave(heads // 2, 1)), name


@odd("attention: no keys gives zeros, no queries gives nothing")
def _(folder):
    assert not attention(**inputs(k=numbers(2, 2, 0, 8), v=numbers(2, 2, 0, 6))).any()
    assert attention(**inputs(q=numbers(2, 4, 0, 8))).shape == (2, 4, 0, 6)


@odd("attention: more queries than keys, causal: the first see nothing")
def _(folder):
    out = attention(**inputs(q=numbers(2, 4, 5, 8), causal=True))
    assert not out[:, :, :2].any() and out[:, :, 2:].all(-1).any()


@odd("attention: −inf in a bias hides as a mask does, a row of it gives zeros")
def _(folder):
    mask = torch.tensor([[True, False, True], [False, True, True], [False, False, False]])
    bias = torch.zeros(3, 3).masked_fill(~mask, -math.inf)
    for mechanism in (attention, attn_core.flash_attention, lambda **given: attention_with_weights(**given)[0]):
        assert near(mechanism(**inputs(bias=bias)), mechanism(**inputs(mask=mask)))
        assert not mechanism(**inputs(bias=bias))[:, :, 2].any()


@odd("attention: NaN in a value that nobody sees stays unseen in the explicit path's empty row")
def _(folder):
    v = numbers(2, 2, 3, 6).fill_(math.nan)
    assert not attention_with_weights(**inputs(v=v, mask=torch.zeros(3, 3, dtype=torch.bool)))[0].any()


@odd("attention: scores of 10^30 give no NaN")
def _(folder):
    given = inputs(q=numbers(2, 4, 3, 8) * 1e15, k=numbers(2, 2, 3, 8) * 1e15)
    assert attention_with_weights(**given)[0].isfinite().all()


@odd("attention: a scale of 0 is a mean, a negative one turns the order round")
def _(folder):
    out = attention(**inputs(scale=0))
    assert near(out, numbers(2, 2, 3, 6).mean(2, keepdim=True).repeat_interleave(2, 1).expand_as(out))
    assert near(attention(**inputs(scale=-0.5)), attention(**inputs(q=-numbers(2, 4, 3, 8), scale=0.5)))


@odd("masks: lengths of both dtypes, and 0 and the full size")
def _(folder):
    for dtype in (torch.int32, torch.int64):
        assert masks.length_mask(torch.tensor([0, 3], dtype=dtype), 3).tolist() == [[False] * 3, [True] * 3]
    assert masks.length_mask(whole(), 3).shape == (0, 3) and masks.causal(0, 3).shape == (0, 3)


@odd("positions: a length of 0, and the thousand-millionth position")
def _(folder):
    assert sinusoidal(0, 4).shape == (0, 4)
    far = Sinusoidal(2)(torch.zeros(1, 1, 2), 10**9)[0, 0]
    assert near(far, torch.tensor([math.sin(1e9), math.cos(1e9)]))


@odd("cache: a call that fails leaves it as it was, and made again gives what it would have given")
def _(folder):
    layer, x = MultiHeadAttention(8, 2, positions=ALiBi(2)), numbers(2, 2, 8)
    for lengths in ((2, 2), (2, 1)):
        wanted = read(layer, x, filled(lengths=lengths))
        cache = filled(lengths=lengths)
        for wrong in ({"mask": torch.ones(2, 2)}, {"bias": numbers(2, 9)}, {"bias": numbers(4) > 0}, {"mask": [True]}):
            try:
                read(layer, x, cache, **wrong)
            except ValueError:
                assert cache.lengths.tolist() == list(lengths)
        assert torch.equal(read(layer, x, cache), wanted)


@odd("cache: no tokens to append, and rows named twice")
def _(folder):
    cache = filled()
    k, _ = cache.append(numbers(2, 2, 0, 4), numbers(2, 2, 0, 4))
    assert k.shape == (2, 2, 2, 4) and cache.lengths.tolist() == [2, 2]
    second = cache.keys[1]
    cache.reorder(whole(1, 1))
    assert torch.equal(cache.keys[0], second)
    assert KVCache(1, 1, 1, 1).longest == 0


@odd("tables: too few blocks is said, and nothing has changed")
def _(folder):
    tables = started(2, 3)
    before = str(vars(tables))
    for growth in ({0: 9}, {1: 1, 0: 7}):
        try:
            tables.append_all(growth)
        except OutOfBlocks as error:
            assert str(error).startswith("expected at most 1 new blocks, the free ones of 4, got a need of ")
        else:
            raise AssertionError(growth)
    assert str(vars(tables)) == before and tables.append(0, 0).slots == []


@odd("paged: a row of no tokens gives zeros, slots past the length may hold NaN")
def _(folder):
    tables, pool = started(3, 0), BlockPool(4, 2, 2, 8)
    pool.keys.fill_(math.nan), pool.values.fill_(math.nan)
    slots = [(block, at) for block in tables.table(0) for at in (0, 1)][:3]
    pool.write(slots, numbers(3, 2, 8), numbers(3, 2, 8))
    out = paged_attention(numbers(2, 2, 1, 8), pool.keys, pool.values, *as_tensors(tables, [0, 1]))
    k = numbers(3, 2, 8).transpose(0, 1)[None]
    assert near(out[:1], attention(numbers(2, 2, 1, 8)[:1], k, k)) and not out[1].any()
    pool.copy([]), pool.write([], numbers(0, 2, 8), numbers(0, 2, 8))


@odd("OnlineSoftmax: rows of none, values of no size, and hidden tiles")
def _(folder):
    assert attn_core.OnlineSoftmax((0,), 4).out().shape == (0, 4)
    state = attn_core.OnlineSoftmax((2,), 3)
    state.add(torch.full((2, 4), -math.inf), numbers(4, 3))
    assert not state.out().any() and state.logsumexp().tolist() == [-math.inf] * 2
    attn_core.OnlineSoftmax((2,), 0).add(numbers(2, 1), numbers(1, 0))


@odd("vocabulary: of one word, and of none but the special ones")
def _(folder):
    assert Vocab([["a"]]).encode(["a", "b"]) == [4, Vocab.UNK] and len(Vocab([["<eos>", "<pad>"]])) == 4
    assert len(Vocab([["a"]], min_count=2)) == 4


@odd("vocabulary: markup is a word like any other, a special token's name is an unknown one")
def _(folder):
    words = ["</script>", "<!--", "&amp;", "<EOS>"]
    vocab = Vocab([words])
    assert vocab.decode(vocab.encode(words)) == words
    for name in Vocab.SPECIALS:
        assert Vocab([words, [name]]).encode(["<!--", name]) == [vocab.encode(["<!--"])[0], Vocab.UNK]
        assert name not in vocab
    assert vocab.decode(vocab.encode(["<!--", "<eos>", "&amp;"])) == ["<!--", "<unk>", "&amp;"]


@odd("vocabulary: right-to-left text, combining characters, NUL, blanks and a lone surrogate are words")
def _(folder):
    words = ["שלום", "مرحبا", "e\u0301", "é", "\0", " ", "\u202e", "\ud800", "𝔸"]
    vocab = Vocab([words])
    assert vocab.decode(vocab.encode(words)) == words and len(vocab) == 4 + len(words)
    assert vocab.decode(torch.tensor([4])) and vocab.decode([]) == []


@odd("tokens: right-to-left text, combining characters, a byte order mark, NUL, markup, nothing")
def _(folder):
    assert tokenize("שלום, עולם") == ("שלום", ",", "עולם")
    assert tokenize("cafe\u0301") == (unicodedata.normalize("NFC", "cafe\u0301"),) == ("café",)
    assert tokenize("\ufeffHi\r\nyou") == ("hi", "you") and tokenize("") == tokenize(" \u200b\n") == ()
    assert tokenize("a\0b") == ("a", "\0", "b")
    assert "".join(tokenize("</script><eos>")) == "</script><eos>"


@odd("archive: one line, without its end")
def _(folder):
    (folder / texts.ARCHIVE).write_bytes(texts.zipped(b"Hi.\tSalut."))
    assert texts.sentences(folder).train == (Pair(("hi", "."), ("salut", ".")),)


@odd("archive: a byte order mark and the line ends of Windows")
def _(folder):
    (folder / texts.ARCHIVE).write_bytes(texts.zipped(b"\xef\xbb\xbf" + texts.LINES.replace(b"\n", b"\r\n")))
    found = set(texts.sentences(folder).train)
    assert found == {
        Pair(("hi", "you", "."), ("salut", "toi", ".")),
        Pair(("go", "on", "."), ("va", "donc", ".")),
    }


@odd("archive: right-to-left text, markup, NUL and the same line twice")
def _(folder):
    (folder / texts.ARCHIVE).write_bytes(texts.zipped("שלום\t</script>\na\0b\t<eos>\nשלום\t</script>\n".encode()))
    words = {pair.source: "".join(pair.target) for pair in texts.sentences(folder).train}
    assert words == {("שלום",): "</script>", ("a", "\0", "b"): "<eos>"}


@odd("archive: a member whose path leads elsewhere is read, and nothing is written there")
def _(folder):
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / texts.ARCHIVE).write_bytes(texts.zipped(texts.LINES, "../../fra.txt"))
    assert len(texts.sentences(inner).train) == 2
    assert sorted(path.name for path in folder.rglob("*")) == ["a", "b", texts.ARCHIVE]


@odd("archive: one that claims or holds gigabytes takes no more memory than its own bytes")
def _(folder):
    size = tatoeba._LARGEST + 1
    bomb = texts.zipped(bytes(size), deflated=True)
    assert len(bomb) < size / 900
    tracemalloc.start()
    try:
        for content in (bomb, texts.LIES):
            (folder / texts.ARCHIVE).write_bytes(content)
            try:
                texts.sentences(folder)
            except ValueError as error:
                assert "expected" in str(error)
            else:
                raise AssertionError(content[:40])
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@odd("checkpoint: nothing in it, a name in any script, a rest of an earlier write beside it")
def _(folder):
    path = folder / "é שלום.safetensors"
    (folder / f"{path.name}.partial").write_bytes(b"rest")
    save(str(path), Checkpoint({}, {}, {}))
    assert load(path) == Checkpoint({}, {}, {}) and [p.name for p in folder.iterdir()] == [path.name]


@odd("checkpoint: cut nowhere, it is whole, and the table cuts it at each kilobyte that it has")
def _(folder):
    assert 27 * 1024 < len(texts.whole()) <= 28 * 1024


@odd("checkpoint: a folder that nobody may write in keeps what it holds")
def _(folder):
    """Root may write in any folder but those that the kernel makes."""
    there = Path("/proc/self") if os.geteuid() == 0 else folder / "locked"
    if os.geteuid() != 0:
        there.mkdir(mode=0o500)
    if there.is_dir():  # no /proc but on Linux
        with pytest.raises(OSError, match=str(there)):
            save(there / "a", Checkpoint({}, {}, {}))


@odd("checkpoint: infinities, NaN, no elements, stride 0")
def _(folder):
    given = {"a": torch.tensor([math.inf, -math.inf, math.nan]), "b": torch.zeros(0, 3), "c": torch.ones(1).expand(4)}
    save(folder / "a", Checkpoint(given, {"rate": math.inf}, {}))
    found = load(folder / "a")
    assert found.settings == {"rate": math.inf} and all(
        torch.equal(found.tensors[name].nan_to_num(7.0), given[name].nan_to_num(7.0)) for name in given
    )


@odd("quiz: a file with a byte order mark")
def _(folder):
    (folder / "a.json").write_text(json.dumps([texts.question]), encoding="utf-8-sig")
    assert Quiz.load(folder / "a.json").questions == [texts.question]


@odd("heatmap: markup, right-to-left text, control characters and nothing at all as tokens")
def _(folder):
    tokens = ["</script>", "<!--", "שלום", "a\nb", "", "$x$", "\0"]
    widget = AttentionHeatmap(torch.eye(7), tokens, tokens, title="</style>")
    page = widget.static_html()
    state = page.split('<script type="application/json">')[1].split("</script>")[0]
    assert json.loads(state)["source"] == tokens and "<" not in state
    assert page.count("</script>") == 2
    ax = heatmap(torch.eye(7), tokens, tokens)
    assert len(ax.get_xticklabels()) == 7
    plt.close(ax.figure)


@odd("maps: one weight, no weight at all, half precision, whole numbers, lists")
def _(folder):
    for weights in (torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bfloat16), [[1]], [[True]]):
        assert read_maps(weights).weights.shape == (1, 1, 1, 1)
    assert AttentionHeatmap([[0.0]], ["a"], ["b"]).grid().tolist() == [[0.0]]


@odd("scores: empty sentences, one word, a map that looks at nothing")
def _(folder):
    assert bleu([[]], [["a"]]) == 0.0 and exact_match([[], ["a"]], [[], ["a"]]) == 1.0
    assert alignment_error([torch.zeros(1, 2)], [[(0, 0)]]) == 1.0


@odd("decoding: more tokens kept than there are, all of the mass, next to no heat")
def _(folder):
    logits = torch.tensor([[1.0, 2.0, -math.inf]])
    assert torch.equal(top_k(logits, 10**6), logits) and torch.equal(top_p(logits, 1), logits)
    assert Sampler(temperature=1e-300)(logits).tolist() == [1]
    assert Sampler(top_p=1e-300, top_k=1)(logits).tolist() == [1]


@odd("decoding: prompts of one token and of many in one batch, as each by itself")
def _(folder):
    prompts = [[4], [4, 5, 6, 4, 5, 6], [6]]
    together = generate(models.WRITER, prompts, max_new_tokens=3)
    alone = [generate(models.WRITER, [prompt], max_new_tokens=3)[0] for prompt in prompts]
    assert [found.ids for found in together] == [found.ids for found in alone]


@odd("training: one step in all")
def _(folder):
    assert cosine(1, peak=2.0, warmup=0.0)(0) == 2.0


@odd("models: whole rows, and rows that are padding but for one token")
def _(folder):
    source = tensors.ids(2, 3)
    out = models.READER(source, whole(3, 1))
    assert near(out[1, 0], models.READER(source[1:, :1], whole(1))[0, 0])
    states, mask = models.MODEL.encode(source, whole(3, 0))  # a sentence of none is all padding
    assert states.isfinite().all() and mask.sum().item() == 3
