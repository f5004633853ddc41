"""Hostile input for whole models: their sizes, tokens, training, decoding, scores, words, pictures and widgets."""

from dataclasses import replace

import torch
from torch import nn

import attn_core
from attn_book.attribution import occlude, rollout
from attn_book.captioner import ImageEncoder
from attn_book.context import (
    ContextAttention,
    HierarchicalContext,
    global_context,
    sentence_members,
)
from attn_book.context.encoder import ContextLayer
from attn_book.contrastive import ContrastivePair, contrastive_loss, sigmoid_loss, zero_shot
from attn_book.corpus import draw_scenes, next_sentences, two_part_texts
from attn_book.data import Batches, Pair, Vocab
from attn_book.data.vocab import PretrainingVocab
from attn_book.induction import draw_repeats, head_off, induction_scores, next_token_losses, previous_token_scores
from attn_book.pretrain import (
    ClassHead,
    Classifier,
    LabelledBatches,
    MaskedBatches,
    MaskedLanguageModel,
    StreamBatches,
    Text,
    class_logits,
    mask_tokens,
    masked_scores,
    pack,
    whole_texts,
)
from attn_book.retrieval import mean_vectors, retrieval_accuracy
from attn_book.teacher_forcing import teacher_forced_attention
from attn_book.train import cosine, fit, reinforce_loss, smoothed_loss
from attn_book.translation import translate
from attn_core import Dense, MultiHeadAttention, SlidingWindow
from attn_core.decode import Sampler, beam, generate, greedy, sample
from attn_core.positions import Rotary
from attn_core.seq2seq import (
    BahdanauDecoder,
    DeepOutput,
    Encoder,
    FixedContextDecoder,
    HardDecoder,
    LocalMonotonic,
    LocalPredictive,
    LuongDecoder,
    MultiHeadDecoder,
    Seq2Seq,
)
from attn_core.transformer import (
    AddNorm,
    DecoderLayer,
    FeedForward,
    LanguageModel,
    SegmentEncoder,
    SwiGLU,
    TokenEmbedding,
    Transformer,
    TransformerConfig,
    TransformerEncoder,
)
from attn_core.vision import PatchEmbedding, VisionTransformer
from tests.hostile.row import Row
from tests.hostile.tensors import INF, NAN, ids, numbers, whole

CONFIG = TransformerConfig(7, model_dim=8, num_heads=2, num_layers=1, feed_forward_dim=8, dropout=0.0)
VOCAB, TEXTS = Vocab([["a", "b", "c"]]), PretrainingVocab([["a", "b", "c"]])
PAIRS = [Pair(("a", "b"), ("b", "a")), Pair(("c",), ("c",))]
SIZES = {"embed_dim": 4, "hidden_dim": 6, "memory_dim": 6}
MODEL, WRITER, READER = Transformer(CONFIG).eval(), LanguageModel(CONFIG).eval(), TransformerEncoder(CONFIG).eval()
ENCODER = Encoder(7, embed_dim=4, hidden_dim=3).eval()
RECURRENT = Seq2Seq(ENCODER, BahdanauDecoder(7, **SIZES)).eval()
SEGMENTS = SegmentEncoder(replace(CONFIG, vocab_size=10)).eval()
MASKED = MaskedLanguageModel(SEGMENTS)
MEMORY = ENCODER(ids(2, 3), whole(3, 2))


def settings(**others):
    return {"vocab_size": 7, "model_dim": 8, "num_heads": 2} | others


def read(**others):
    return {"source": ids(2, 3), "lengths": whole(3, 2)} | others


def full(model, source, lengths, target):
    return model(source, lengths, target)


def prefill(model, tokens, lengths):
    return model.prefill(tokens, lengths)


def written(**others):
    return {"model": RECURRENT, **read(), "max_length": 3} | others


# A row takes a line or two.
# fmt: off
MODELS = [
    Row("LanguageModel: heads that do not divide", lambda config: LanguageModel(config),
        {"config": TransformerConfig(**settings(num_heads=3))},
        "num_heads: expected a number that divides model_dim 8, got 3$"),
    Row("config: no layers", TransformerConfig, settings(num_layers=0),
        "num_layers: expected an integer of at least 1, got 0$"),
    Row("config: vocabulary of −1", TransformerConfig, settings(vocab_size=-1),
        "vocab_size: expected an integer of at least 1, got -1$"),
    Row("config: vocabulary as float", TransformerConfig, settings(vocab_size=7.0),
        "vocab_size: expected an integer of at least 1, got 7.0$"),
    Row("config: a vocabulary itself", TransformerConfig, settings(vocab_size=VOCAB),
        "vocab_size: expected an integer of at least 1, got <attn_book.data.vocab.Vocab "),
    Row("config: dropout as text", TransformerConfig, settings(dropout="0.1"),
        r"dropout: expected a probability in \[0, 1\), got '0.1'$"),
    Row("config: dropout NaN", TransformerConfig, settings(dropout=NAN),
        r"dropout: expected a probability in \[0, 1\), got nan$"),
    Row("config: a made norm", TransformerConfig, settings(norm=nn.LayerNorm(8)),
        "norm: expected a function that makes one, got LayerNorm$"),
    Row("config: feed-forward network by name", TransformerConfig, settings(feed_forward="swiglu"),
        "feed_forward: expected a function that makes one, got str$"),
    Row("Transformer: a made mechanism", Transformer, {"config": CONFIG, "encoder_mechanism": Dense()},
        "mechanism: expected a function that makes one, got Dense$"),
    Row("Transformer: a made cross-mechanism", Transformer, {"config": CONFIG, "cross_mechanism": Dense()},
        "cross_mechanism: expected a function that makes one, got Dense$"),
    Row("Transformer: made positions", Transformer, {"config": CONFIG, "positions": Rotary(4)},
        "positions: expected a function that makes one, got Rotary$"),
    Row("LanguageModel: a mechanism's name", LanguageModel, {"config": CONFIG, "mechanism": "dense"},
        "mechanism: expected a function that makes one, got str$"),
    *(
        Row(f"config: {name} {value!r}", TransformerConfig, settings(**{name: value}),
            f"{name}: expected True or False, got {value!r}$")
        for name, value in (("norm_first", "no"), ("bias", None), ("scale_embedding", 0), ("share_query_key", "False"))
    ),
    Row("MultiHead: bias as text", MultiHeadAttention, {"model_dim": 4, "num_heads": 2, "bias": "no"},
        "bias: expected True or False, got 'no'$"),
    *(
        Row(f"{part.__name__}: {name} {value!r}", part, given | {name: value}, f"{name}: expected")
        for part, given, name, value in (
            (FeedForward, {"model_dim": 4, "hidden_dim": 4}, "dropout", NAN),
            (FeedForward, {"hidden_dim": 4}, "model_dim", 0),
            (SwiGLU, {"model_dim": 4}, "hidden_dim", 2.5),
            (AddNorm, {"model_dim": 4, "norm_first": True}, "dropout", 2.0),
            (AddNorm, {"model_dim": 4, "norm_first": True, "dropout": 0.0}, "norm", nn.LayerNorm(4)),
            (DeepOutput, {"input_dim": 4, "hidden_dim": 4}, "vocab_size", 0),
            (TokenEmbedding, {"config": CONFIG, "positions": None}, "vocab_size", True),
            (Encoder, {"vocab_size": 7, "embed_dim": 4, "hidden_dim": 3}, "bidirectional", "no"),
            (LuongDecoder, {"vocab_size": 7, **SIZES}, "score", attn_core.scores.Dot),
            (LuongDecoder, {"vocab_size": 7, **SIZES, "score": attn_core.scores.Dot()}, "window", 3),
            (Seq2Seq, {"decoder": RECURRENT.decoder}, "encoder", Encoder),
        )
    ),
    Row("Encoder: an empty sentence", ENCODER, read(lengths=whole(3, 0)),
        r"lengths: expected at least one token in each sentence, got \[3, 0\]$"),
    Row("DecoderLayer: a window across", DecoderLayer, {"config": CONFIG, "cross_mechanism": SlidingWindow(1)},
        "cross_mechanism: expected one that places no queries, got SlidingWindow$"),
    Row("source: past the vocabulary", MODEL.encode, read(source=whole(4, 7)[None]),
        "source: expected token ids from 0 to 6, got 7$"),
    Row("source: negative ids", MODEL.encode, read(source=whole(4, -1)[None]),
        "source: expected token ids from 0 to 6, got -1$"),
    Row("source: floats as ids", MODEL.encode, read(source=torch.ones(2, 3)),
        "source: expected an int64 or int32 tensor with 2 axes, got torch.float32"),
    Row("source: one axis", MODEL.encode, read(source=ids(3)),
        r"source: expected an int64 or int32 tensor with 2 axes, got torch.int64 of shape \(3,\)$"),
    Row("source: a list", MODEL.encode, read(source=[[4, 5]]),
        "source: expected an int64 or int32 tensor with 2 axes, got list$"),
    Row("source: nothing", MODEL.encode, read(source=ids(2, 0)),
        r"source: expected at least one token, got shape \(2, 0\)$"),
    Row("lengths: past the source", MODEL.encode, read(lengths=whole(3, 4)),
        "lengths: expected lengths from 0 to 3, got 4$"),
    Row("lengths: one for two", MODEL.encode, read(lengths=whole(3)), r"lengths: expected shape \(2,\), got \(1,\)$"),
    Row("lengths: floats", MODEL.encode, read(lengths=torch.ones(2)),
        "lengths: expected an int64 or int32 tensor, got torch.float32"),
    Row("target: another batch", full, {"model": MODEL, **read(), "target": ids(3, 2)},
        "target: expected a batch of 2, as the source's, got 3$"),
    Row("target: True and False", full, {"model": MODEL, **read(), "target": ids(2, 2) > 4},
        "target: expected an int64 or int32 tensor with 2 axes, got torch.bool"),
    Row("encoder: lengths for others", READER, {"tokens": ids(2, 3), "lengths": whole(3, 3, 3)},
        r"lengths: expected shape \(2,\), got \(3,\)$"),
    Row("prefill: an empty prompt", prefill, {"model": WRITER, "tokens": ids(2, 3), "lengths": whole(3, 0)},
        "lengths: expected at least one token in each prompt, got"),
    Row("prefill: lengths for others", prefill, {"model": WRITER, "tokens": ids(2, 3), "lengths": whole(3)},
        r"lengths: expected shape \(2,\), got \(1,\)$"),
    Row("step: a batch of others", lambda model, tokens, state: model.step(tokens, state),
        {"model": WRITER, "tokens": ids(3), "state": WRITER.prefill(ids(2, 3), whole(3, 3))[1]},
        "tokens: expected a batch of 2, as the source's, got 3$"),
    Row("step: past the vocabulary", lambda model, tokens, state: model.step(tokens, state),
        {"model": MODEL, "tokens": whole(4, 70), "state": MODEL.init_state(**read())},
        "tokens: expected token ids from 0 to 6, got 70$"),
    Row("Encoder: no hidden size", Encoder, {"vocab_size": 7, "embed_dim": 4, "hidden_dim": 0},
        "hidden_dim: expected an integer of at least 1, got 0$"),
    Row("Encoder: dropout 1", Encoder, {"vocab_size": 7, "embed_dim": 4, "hidden_dim": 3, "dropout": 1.0},
        r"dropout: expected a probability in \[0, 1\), got 1.0$"),
    Row("Encoder: lengths for others", ENCODER, read(lengths=whole(3)), r"lengths: expected shape \(2,\), got \(1,\)$"),
    Row("Bahdanau: score of none", BahdanauDecoder, {"vocab_size": 7, **SIZES, "score_dim": 0},
        "score_dim: expected an integer of at least 1, got 0$"),
    *(
        Row(f"{type(decoder).__name__}: {name}", lambda decoder, memory, target: decoder(memory, target),
            {"decoder": decoder, "memory": memory, "target": target}, said)
        for decoder in (
            FixedContextDecoder(7, **SIZES),
            BahdanauDecoder(7, **SIZES),
            HardDecoder(7, **SIZES),
            LuongDecoder(7, **SIZES, score=attn_core.scores.Dot()),
            MultiHeadDecoder(7, **SIZES, num_heads=2),
        )
        for name, memory, target, said in (
            ("a tensor as memory", MEMORY.states, ids(2, 2),
                "memory: expected an encoder's Memory of size 6, got torch.float32"),
            ("a memory of another size", MEMORY._replace(states=numbers(2, 3, 4), final=numbers(2, 4)), ids(2, 2),
                "memory: expected an encoder's Memory of size 6, got one of size 4$"),
            ("another batch", MEMORY, ids(3, 2), "target: expected a batch of 2, as the source's, got 3$"),
            ("past the vocabulary", MEMORY, ids(2, 2) + 3, "target: expected token ids from 0 to 6, got 9$"),
        )
    ),
    Row("local: half a word", LocalMonotonic, {"half_width": 0.5},
        "half_width: expected an integer of at least 1, got 0.5$"),
    Row("local: no width", LocalPredictive, {"hidden_dim": 4, "half_width": 0},
        "half_width: expected an integer of at least 1, got 0$"),
    Row("hard: soft model", reinforce_loss, {"model": RECURRENT, "batch": None},
        "model: expected a HardDecoder as its decoder, got BahdanauDecoder$"),
    Row("hard: discount as text", reinforce_loss, {"model": Seq2Seq(ENCODER, HardDecoder(7, **SIZES)), "batch": None,
        "discount": "1"}, "discount: expected a number from 0 to 1, got '1'$"),
    Row("hard: infinite weight", reinforce_loss, {"model": Seq2Seq(ENCODER, HardDecoder(7, **SIZES)), "batch": None,
        "entropy_weight": INF}, "entropy_weight: expected a finite number of at least 0, got inf$"),
    Row("context: x of ids", global_context, {"x": ids(1, 2, 3)},
        r"x: expected a floating tensor of shape \(batch, length, size\), got torch.int64"),
    Row("context: a mask of floats", global_context, {"x": numbers(1, 2, 3), "mask": torch.ones(1, 2)},
        r"mask: expected a boolean tensor of shape \(1, 2\), got torch.float32"),
    Row("context: sentence −1", sentence_members, {"sentence_numbers": whole(0, -1)[None]},
        "sentence_numbers: expected numbers from 0 to 1 at words, got -1$"),
    Row("context: sentence of millions", sentence_members, {"sentence_numbers": whole(0, 10**9)[None]},
        "sentence_numbers: expected numbers from 0 to 1 at words, got 1000000000$"),
    Row("context: sentences of floats", HierarchicalContext(3), {"x": numbers(1, 2, 3),
        "sentence_numbers": torch.zeros(1, 2)},
        "sentence_numbers: expected an int64 or int32 tensor of 2 axes, got torch.float32"),
    Row("ContextAttention: heads", ContextAttention, {"model_dim": 8, "num_heads": 3, "context_dim": 2},
        "num_heads: expected a number that divides model_dim 8, got 3$"),
    Row("ContextAttention: another context", ContextAttention(8, 2, context_dim=4),
        {"x": numbers(1, 3, 8), "context": numbers(1, 2, 4)},
        r"context: expected shape \(1, 3 or 1, 4\), to go with x, got \(1, 2, 4\)$"),
    Row("ContextAttention: context elsewhere", ContextAttention(8, 2, context_dim=4),
        {"x": numbers(1, 3, 8), "context": numbers(1, 3, 4, device="meta")},
        "context: expected device cpu, the weights', got meta$"),
    Row("ContextLayer: no form", ContextLayer, {"config": CONFIG, "form": nn.Identity()},
        "form: expected a form of context with its context_dim, got Identity$"),
]

images = numbers(2, 3, 8, 8)
PICTURES = [
    Row("patches: no size", PatchEmbedding, {"patch_size": 0, "model_dim": 4},
        "patch_size: expected an integer of at least 1, got 0$"),
    Row("patches: bytes", PatchEmbedding(4, 4), {"images": images.to(torch.uint8)},
        r"images: expected a floating tensor \(batch, channels, height, width\), got torch.uint8"),
    Row("patches: grey", PatchEmbedding(4, 4), {"images": images[:, :1]},
        r"images: expected 3 channels, got shape \(2, 1, 8, 8\)$"),
    Row("patches: a rest", PatchEmbedding(3, 4), {"images": images},
        r"images: expected sides that 3 divides, got shape \(2, 3, 8, 8\)$"),
    Row("ViT: a rest", VisionTransformer, {"config": CONFIG, "image_size": 9, "patch_size": 4},
        "image_size: expected a multiple of patch_size 4, got 9$"),
    Row("ViT: larger images", VisionTransformer(CONFIG, image_size=4, patch_size=4), {"images": images},
        r"images: expected sides of 4 pixels, got \(8, 8\)$"),
    Row("captioner: odd images", ImageEncoder, {"image_size": 12, "memory_dim": 4},
        "image_size: expected a multiple of 8, got 12$"),
    Row("captioner: no regions", ImageEncoder(image_size=8, memory_dim=4), {"images": images, "lengths": whole(1, 0)},
        "lengths: expected at least one region in every image, got a length of 0$"),
    Row("captioner: regions of others", ImageEncoder(image_size=8, memory_dim=4).eval(),
        {"images": images, "lengths": whole(1)}, r"lengths: expected shape \(2,\), got \(1,\)$"),
    *(
        Row(f"pair: temperature {value!r}", ContrastivePair, {"images": None, "texts": None, "shared_dim": 2,
            "temperature": value}, f"temperature: expected a finite number of at least .01, got {value!r}$")
        for value in (0, NAN, INF, "0.07", True)
    ),
    *(
        Row(f"pair: bias {value!r}", ContrastivePair, {"images": None, "texts": None, "shared_dim": 2, "bias": value},
            f"bias: expected None or a finite number, got {value!r}$")
        for value in (NAN, INF, "-10", True)
    ),
    *(
        Row(f"{loss.__name__}: {name}", loss, {"logits": logits}, r"logits: expected a floating tensor \(B, B\), got")
        for loss in (contrastive_loss, sigmoid_loss)
        for name, logits in (("more", numbers(2, 3)), ("none", numbers(0, 0)), ("ids", ids(2, 2)), ("list", [[1.0]]))
    ),
    Row("zero_shot: no captions", zero_shot, {"model": None, "images": images, "captions": [], "vocab": VOCAB},
        "captions: expected at least one, got none$"),
    Row("ViT: class token as text", VisionTransformer, {"config": CONFIG, "image_size": 8, "patch_size": 4,
        "class_token": "no"}, "class_token: expected True or False, got 'no'$"),
    Row("embed_texts: an empty text", lambda model, tokens, lengths: model.embed_texts(tokens, lengths),
        {"model": ContrastivePair(VisionTransformer(CONFIG, image_size=8, patch_size=4), READER, shared_dim=2),
        "tokens": ids(2, 3), "lengths": whole(0, 3)},
        r"lengths: expected at least one token in each text, got \[0, 3\]$"),
    Row("drawings: none", draw_scenes, {"count": 0}, "count: expected an integer of at least 1, got 0$"),
    Row("drawings: noise as text", draw_scenes, {"count": 1, "noise": "0.1"},
        "noise: expected a finite number of at least 0, got '0.1'$"),
    Row("drawings: pairs as a number", draw_scenes, {"count": 1, "pairs": 3},
        r"pairs: expected \(colour, shape\) out of COLOURS and SHAPES, got 3$"),
    Row("rollout: no heads", rollout, {"maps": numbers(1, 1, 0, 2, 2)},
        r"maps: expected shape \(images, layers, heads, T, T\), got \(1, 1, 0, 2, 2\)$"),
    Row("occlude: one patch too few", occlude, {"images": images, "patches": torch.ones(2, 3) > 0, "patch_size": 4},
        r"patches: expected a boolean tensor of shape \(2, 4\), got torch.bool of shape \(2, 3\)$"),
]

generator = torch.Generator()
PRETRAINING = [
    Row("mask_tokens: only special tokens", mask_tokens, {"tokens": ids(1, 2), "vocab_size": 7, "generator": generator},
        "vocab_size: expected an integer of at least 8, got 7$"),
    *(
        Row(f"mask_tokens: share {value!r}", mask_tokens, {"tokens": ids(1, 2), "vocab_size": 9, "generator": generator,
            "share": value}, rf"share: expected a share in \(0, 1\], got {value!r}$")
        for value in (0, NAN, 1.5, "0.15", True)
    ),
    Row("segments: a third part", SEGMENTS, {"tokens": ids(1, 2), "lengths": whole(2), "segments": whole(0, 2)[None]},
        "segments: expected 0 and 1, got 0 to 2$"),
    Row("segments: floats", SEGMENTS, {"tokens": ids(1, 2), "lengths": whole(2), "segments": torch.zeros(1, 2)},
        r"segments: expected integers of the shape of tokens, \(1, 2\), got torch.float32 of shape \(1, 2\)$"),
    Row("segments: a list", SEGMENTS, {"tokens": ids(1, 2), "lengths": whole(2), "segments": [0, 0]},
        r"segments: expected integers of the shape of tokens, \(1, 2\), got list$"),
    Row("segments: lengths for others", SEGMENTS, {"tokens": ids(2, 2), "lengths": whole(2)},
        r"lengths: expected shape \(2,\), got \(1,\)$"),
    Row("mask_tokens: no generator", mask_tokens, {"tokens": ids(1, 2), "vocab_size": 9, "generator": None},
        "generator: expected a torch.Generator, got None$"),
    *(
        Row(f"Classifier: at {at!r}", lambda at: Classifier(SEGMENTS, 2)(ids(2, 2), whole(2, 2), None, at), {"at": at},
            f"at: expected {said}")
        for at, said in (
            (whole(0, 2), r"positions from 0 to 1, got \[0, 2\]$"),
            (whole(0, -1), r"positions from 0 to 1, got \[0, -1\]$"),
            (whole(0), r"integers of shape \(2,\), got torch.int64 of shape \(1,\)$"),
            ([0, 0], r"integers of shape \(2,\), got list$"),
        )
    ),
    *(
        Row(f"MaskedLanguageModel: hidden {name}", lambda hidden: MASKED(ids(2, 2), whole(2, 2), None, hidden),
            {"hidden": hidden}, r"hidden: expected a boolean tensor of shape \(2, 2\), got")
        for name, hidden in (("numbers", ids(2, 2)), ("rows", whole(0, 1) > 0), ("floats", numbers(2, 2)))
    ),
    Row("masked_scores: no batches", masked_scores, {"model": MASKED, "batches": []},
        "batches: expected at least one hidden token, got none$"),
    Row("class_logits: no batches", class_logits, {"model": Classifier(SEGMENTS, 2), "batches": []},
        "batches: expected at least one, got none$"),
    Row("masked: a plain vocabulary", MaskedBatches, {"texts": whole_texts([["a"]]), "vocab": VOCAB, "batch_size": 1,
        "seed": 0}, "vocab: expected a PretrainingVocab, got Vocab$"),
    Row("masked: texts in a list", MaskedBatches, {"texts": [], "vocab": TEXTS, "batch_size": 1, "seed": 0},
        "texts: expected a function that makes one, got list$"),
    Row("labelled: half a label", LabelledBatches, {"texts": [Text(["a"], label=1.5)], "vocab": TEXTS, "batch_size": 1},
        "texts: expected a label of 0 or more for each, got Text"),
    Row("stream: words in a list", StreamBatches, {"texts": [["a"]], "vocab": ["a"], "batch_size": 1, "length": 1},
        "vocab: expected a Vocab, got list$"),
    Row("ClassHead: no classes", ClassHead, {"model_dim": 4, "classes": 0},
        "classes: expected an integer of at least 1, got 0$"),
    Row("masked: no texts", MaskedBatches, {"texts": lambda number: [], "vocab": TEXTS, "batch_size": 1, "seed": 0},
        "texts: expected at least one text, got none$"),
    Row("two parts: texts", two_part_texts, {"paragraphs": ["a b"]},
        r"paragraphs: expected a sequence of Paragraphs, got \['a b'\]$"),
    Row("next sentences: nothing", next_sentences, {"paragraphs": None},
        "paragraphs: expected two or more, got NoneType$"),
    Row("labelled: no label", LabelledBatches, {"texts": [Text(["a"])], "vocab": TEXTS, "batch_size": 1},
        "texts: expected a label of 0 or more for each, got Text"),
    Row("pack: a place past the end", pack, {"text": Text(["a"], at=3), "vocab": TEXTS},
        "at: expected a position from 0 to 2, got 3$"),
    Row("pack: a text as its words", pack, {"text": Text("abc"), "vocab": TEXTS},
        "tokens: expected a sequence of words, got 'abc'$"),
    Row("stream: too few", StreamBatches, {"texts": [["a"]], "vocab": VOCAB, "batch_size": 1, "length": 9},
        "texts: expected more than 9 tokens in all"),
    Row("stream: one text", StreamBatches, {"texts": "abc", "vocab": VOCAB, "batch_size": 1, "length": 1},
        "tokens: expected a sequence of words, got 'a'$"),
    Row("vectors: of lists", mean_vectors, {"states": [[1.0]], "tokens": ids(1, 1)},
        "states: expected tensors of states and tokens, got list and torch.int64"),
    Row("vectors: of other tokens", mean_vectors, {"states": numbers(1, 2, 3), "tokens": ids(1, 3)},
        r"tokens: expected the first two axes of states, \(1, 2, 3\), got torch.int64"),
    Row("retrieval: no tensors", retrieval_accuracy, {"queries": None, "candidates": numbers(1, 2)},
        r"queries: expected a tensor of shape \(K, C\), got NoneType$"),
    Row("repeats: half a piece", draw_repeats, {"batch_size": 1, "length": 8, "vocab_size": 5, "piece": (2.5, 3),
        "generator": generator}, r"piece: expected 2 <= shortest <= longest <= half of length 8, got \(2.5, 3\)$"),
    Row("repeats: one number", draw_repeats, {"batch_size": 1, "length": 8, "vocab_size": 5, "piece": 3,
        "generator": generator}, "piece: expected 2 <= shortest <= longest <= half of length 8, got 3$"),
    Row("repeats: no generator", draw_repeats, {"batch_size": 1, "length": 8, "vocab_size": 5, "piece": (2, 3),
        "generator": None}, "generator: expected a torch.Generator, got NoneType$"),
    Row("head_off: head −1", lambda layer, head: head_off(layer, head).__enter__(),
        {"layer": WRITER.stack.layers[0].attention, "head": -1},
        "head: expected one of the layer's, from 0 to 1, got -1$"),
    Row("head_off: head as text", lambda layer, head: head_off(layer, head).__enter__(),
        {"layer": WRITER.stack.layers[0].attention, "head": "0"},
        "head: expected one of the layer's, from 0 to 1, got '0'$"),
    Row("head_off: another layer", lambda layer, head: head_off(layer, head).__enter__(),
        {"layer": nn.Linear(2, 2), "head": 0}, "layer: expected a MultiHeadAttention, got Linear$"),
    Row("induction: no tokens", induction_scores, {"weights": numbers(1, 1, 2, 2), "tokens": None},
        r"tokens: expected shape \(1, 2\), to go with weights, got NoneType$"),
    Row("induction: one token", previous_token_scores, {"weights": numbers(1, 1, 1, 1)},
        r"weights: expected shape \(B, H, T, T\) with two tokens at least, got torch.float32"),
    Row("induction: logits as a list", next_token_losses, {"logits": [], "tokens": ids(1, 2)},
        "logits: expected a tensor, got list$"),
]

BATCHES = Batches(PAIRS, VOCAB, VOCAB, batch_size=2)


def training(**others):
    return {"model": RECURRENT, "batches": BATCHES, "epochs": 1, "progress": False, "device": "cpu"} | others


TRAINING = [
    *(
        Row(f"fit: {name} {value!r}", fit, training(**{name: value}), f"{name}: expected {wanted}")
        for name, value, wanted in (
            ("epochs", -1, "an integer of at least 1, got -1$"),
            ("epochs", 1.0, "an integer of at least 1, got 1.0$"),
            ("epochs", True, "an integer of at least 1, got True$"),
            ("accumulate", 0, "an integer of at least 1, got 0$"),
            ("learning_rate", NAN, "a finite number above 0, got nan$"),
            ("learning_rate", "1e-3", "a finite number above 0, got '1e-3'$"),
            ("learning_rate", True, "a finite number above 0, got True$"),
            ("clip", INF, "a finite number above 0, got inf$"),
            ("clip", None, "a finite number above 0, got None$"),
            ("warmup", 1.0, r"a share in \[0, 1\), got 1.0$"),
            ("warmup", "5 %", r"a share in \[0, 1\), got '5 %'$"),
            ("seed", "0", "an integer from 0 to 4611686018427387904, got '0'$"),
            ("seed", -1, "an integer from 0 to 4611686018427387904, got -1$"),
            ("precision", "bfloat16", "torch.float32, torch.bfloat16 or torch.float16, got 'bfloat16'$"),
            ("precision", torch.int8, "torch.float32, torch.bfloat16 or torch.float16, got torch.int8$"),
            ("validate_every", 0, "an integer of at least 1, got 0$"),
            ("checkpoint_every", -1, "an integer of at least 1, got -1$"),
            ("checkpoint", 7, "a path, got int$"),
            ("schedule", 1e-3, "a function, got float$"),
            ("loss", "nll", "a function, got str$"),
            ("validate", True, "a function, got bool$"),
            ("batches", [], "EpochBatches, for example Batches, got list$"),
            ("model", len, "an nn.Module, got builtin_function_or_method$"),
        )
    ),
    Row("fit: a loss of no tensor", fit, training(loss=lambda model, batch: 1.0),
        "loss: expected a scalar tensor, the sum, and a count, got float$"),
    Row("fit: a loss of many", fit, training(loss=lambda model, batch: numbers(2)),
        r"loss: expected a scalar tensor, the sum, and a count, got torch.float32 of shape \(2,\)$"),
    Row("cosine: no steps", cosine, {"steps": 0, "peak": 1.0}, "steps: expected an integer of at least 1, got 0$"),
    Row("cosine: peak as text", cosine, {"steps": 1, "peak": "1"}, "peak: expected a finite number above 0, got '1'$"),
    Row("smoothed_loss: NaN", smoothed_loss, {"smoothing": NAN}, r"smoothing: expected a share in \[0, 1\), got nan$"),
    Row("Batches: no pairs", Batches, {"pairs": [], "source_vocab": VOCAB, "target_vocab": VOCAB, "batch_size": 1},
        "pairs: expected at least one pair, got none$"),
    Row("Batches: seed −1", Batches, {"pairs": PAIRS, "source_vocab": VOCAB, "target_vocab": VOCAB, "batch_size": 1,
        "seed": -1}, "seed: expected an integer of at least 0, got -1$"),
]


DECODING = [
    *(
        Row(f"{call.__name__}: max_length {value!r}", call, written(max_length=value),
            f"max_length: expected an integer of at least 1, got {value!r}$")
        for call in (greedy, sample, beam)
        for value in (0, -1, 2.0, "3")
    ),
    *(
        Row(f"{call.__name__}: {name} {value!r}", call, written(**{name: value}), f"{name}: expected {said}$")
        for call in (greedy, sample, beam)
        for name, value, said in (
            ("source", [[4, 5]], r"a tensor of shape \(batch, length\), got list"),
            ("source", torch.tensor([4]), r"a tensor of shape \(batch, length\), got torch.int64 of shape \(1,\)"),
            ("lengths", None, "an int64 or int32 tensor of 1 axes, got NoneType"),
            ("lengths", torch.tensor([1]), r"shape \(2,\), got \(1,\)"),
            ("begin_id", -1, "an integer of at least 0, got -1"),
            ("end_ids", 2, "a sequence of token ids, got int"),
            ("end_ids", [True], "an integer of at least 0, got True"),
        )
    ),
    Row("beam: none", beam, written(beam_size=0), "beam_size: expected an integer of at least 1, got 0$"),
    Row("beam: penalty as text", beam, written(length_penalty="1"),
        "length_penalty: expected a finite number of at least 0, got '1'$"),
    Row("beam: penalty NaN", beam, written(length_penalty=NAN),
        "length_penalty: expected a finite number of at least 0, got nan$"),
    Row("sample: a pick of floats", sample, written(pick=lambda logits: logits[:, 0]),
        r"pick: expected 2 token ids \(int64\) on cpu, got torch.float32"),
    *(
        Row(f"Sampler: temperature {value!r}", Sampler, {"temperature": value},
            f"temperature: expected a finite number above 0 .*, got {value!r}$")
        for value in (0, -1.0, NAN, INF, "1", True)
    ),
    *(
        Row(f"Sampler: top_k {value!r}", Sampler, {"top_k": value},
            f"top_k: expected an integer of at least 1, got {value!r}$")
        for value in (0, -3, 2.5)
    ),
    *(
        Row(f"Sampler: top_p {value!r}", Sampler, {"top_p": value},
            rf"top_p: expected a probability in \(0, 1\], got {value!r}$")
        for value in (0, 2, NAN, "0.9")
    ),
    *(
        Row(f"generate: {name}", generate, {"model": WRITER, "prompts": prompts, "max_new_tokens": 1},
            said)
        for name, prompts, said in (
            ("no prompts", [], r"prompts: expected at least one, and a token id in each, got \[\]$"),
            ("an empty prompt", [[4], []], r"prompts: expected at least one, and a token id in each, got .*4.*$"),
            *(
                (f"ids that hold {wrong!r}", [[4, wrong]], f"prompts: expected token ids from 0 to 6, got {wrong!r}$")
                for wrong in (4.0, -1, 7, True, "a", None)
            ),
            ("ids of one prompt", [5, 6], "prompts: expected a sequence of token ids, got int$"),
            ("a text", "abc", "prompts: expected at least one, and a token id in each, got 'abc'$"),
            ("texts", ["abc"], "prompts: expected a sequence of token ids, got str$"),
            ("None", None, "prompts: expected at least one, and a token id in each, got None$"),
            ("a tensor of floats", torch.tensor([[1.0]]), r"prompts: expected token ids from 0 to 6, got 1\.0$"),
        )
    ),
    Row("generate: no new tokens", generate, {"model": WRITER, "prompts": [[4]], "max_new_tokens": 0},
        "max_new_tokens: expected an integer of at least 1, got 0$"),
    *(
        Row(f"translate: {name}", translate, {"model": RECURRENT, "sentences": given, "source_vocab": VOCAB,
            "target_vocab": VOCAB}, f"sentences: expected words, at least one, in each, got {got}$")
        for name, given, got in (
            ("one text", "abc", "'a'"),
            ("texts", ["a b"], "'a b'"),
            ("an empty one", [["a"], []], r"\[\]"),
            ("bytes", [b"a b"], "b'a b'"),
            ("ids", [[4, 5]], r"\[4, 5\]"),
            ("ids of one", [4, 5], "4"),
            ("None", None, "None"),
        )
    ),
    Row("translate: max_length 0", translate, {"model": RECURRENT, "sentences": [], "source_vocab": VOCAB,
        "target_vocab": VOCAB, "max_length": 0}, "max_length: expected an integer of at least 1, got 0$"),
    Row("translate: no beam", translate, {"model": RECURRENT, "sentences": [["a"]], "source_vocab": VOCAB,
        "target_vocab": VOCAB, "beam_size": False}, "beam_size: expected an integer of at least 1, got False$"),
    Row("teacher_forced_attention: no attention", teacher_forced_attention,
        {"model": Seq2Seq(ENCODER, FixedContextDecoder(7, **SIZES)), "pairs": PAIRS, "source_vocab": VOCAB,
        "target_vocab": VOCAB}, r"model: expected one module with attention weights, got \[\]$"),
]
