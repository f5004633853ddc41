"""Hostile input for whole models: their sizes, tokens, training, decoding, scores, words, pictures and widgets."""

from dataclasses import replace

import torch
from torch import nn

import attn_core
from attn_book.attribution import occlude, rollout
from attn_book.captioner import ImageEncoder
from attn_book.context import (
    ContextAttention,
    DynamicContext,
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
from attn_core.decode import Sampler, beam, generate, greedy, sample, top_k, top_p
from attn_core.positions import Rotary
from attn_core.seq2seq import (
    BahdanauDecoder,
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
from tests.hostile.row import sizes, wrong
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


# A row takes a line or two.
# fmt: off
MODELS = [
    *sizes("config", TransformerConfig, settings(),
        num_layers=[0, 1.5], vocab_size=[-1, 7.0, VOCAB], source_vocab_size=[0], feed_forward_dim=[-1],
        dropout=["0.1", NAN, 1.0], norm=[nn.LayerNorm(8)], feed_forward=["swiglu"], attention=["latent"],
        norm_first=["no"], bias=[None], scale_embedding=[0]),
    *wrong("LanguageModel", LanguageModel, {"config": CONFIG},
        ("mechanism", "dense"), ("config", TransformerConfig(**settings(num_heads=3)), "num_heads")),
    *wrong("Transformer", Transformer, {"config": CONFIG}, ("encoder_mechanism", Dense(), "mechanism"),
        ("cross_mechanism", Dense()), ("positions", Rotary(4))),
    *sizes("MultiHead", MultiHeadAttention, {"model_dim": 4, "num_heads": 2}, bias=["no"]),
    *sizes("FeedForward", FeedForward, {"model_dim": 4, "hidden_dim": 4}, dropout=[NAN], model_dim=[0]),
    *sizes("SwiGLU", SwiGLU, {"model_dim": 4}, hidden_dim=[2.5]),
    *sizes("AddNorm", AddNorm, {"model_dim": 4, "norm_first": True, "dropout": 0.0},
        dropout=[2.0], norm=[nn.LayerNorm(4)]),
    *sizes("TokenEmbedding", TokenEmbedding, {"config": CONFIG, "positions": None}, vocab_size=[True]),
    *sizes("Encoder", Encoder, {"vocab_size": 7, "embed_dim": 4, "hidden_dim": 3}, vocab_size=[0], hidden_dim=[0, -1],
        num_layers=[0], dropout=[1.0], bidirectional=["no"]),
    *sizes("Bahdanau", BahdanauDecoder, {"vocab_size": 7, **SIZES}, memory_dim=[0, 2.0]),
    *sizes("Luong", LuongDecoder, {"vocab_size": 7, **SIZES, "score": attn_core.scores.Dot()},
        score=[attn_core.scores.Dot], window=[3]),
    *sizes("Seq2Seq", Seq2Seq, {"decoder": RECURRENT.decoder}, encoder=[Encoder]),
    *sizes("local-m", LocalMonotonic, {}, half_width=[0, 0.5]),
    *sizes("local-p", LocalPredictive, {"hidden_dim": 4, "half_width": 2}, hidden_dim=[0], half_width=[0, 2.5]),
    *sizes("DecoderLayer", DecoderLayer, {"config": CONFIG}, cross_mechanism=[SlidingWindow(1)]),
    *sizes("encode", MODEL.encode, read(),
        source=[whole(4, 7)[None], whole(4, -1)[None], torch.ones(2, 3), ids(3), [[4, 5]], ids(2, 0)],
        lengths=[whole(3, 4), whole(3), torch.ones(2)]),
    *sizes("Transformer's call", full, {"model": MODEL, **read()}, target=[ids(3, 2), ids(2, 2) > 4]),
    *sizes("Encoder's call", ENCODER, read(), lengths=[whole(3), whole(3, 0)], source=[ids(5), ids(0, 3)]),
    *sizes("TransformerEncoder's call", READER, {"tokens": ids(2, 3)}, lengths=[whole(3, 3, 3), whole(9, 0)]),
    *sizes("LanguageModel's call", WRITER, {}, tokens=[ids(4)]),
    *sizes("prefill", prefill, {"model": WRITER, "tokens": ids(2, 3)}, lengths=[whole(3, 0), whole(3)]),
    *sizes("LanguageModel's step", LanguageModel.step, {"self": WRITER,
        "state": WRITER.prefill(ids(2, 3), whole(3, 3))[1]}, tokens=[ids(3)]),
    *sizes("Transformer's step", Transformer.step, {"self": MODEL, "state": MODEL.init_state(**read())},
        tokens=[whole(4, 70)]),
    *(
        row
        for decoder in (
            FixedContextDecoder(7, **SIZES),
            BahdanauDecoder(7, **SIZES),
            HardDecoder(7, **SIZES),
            LuongDecoder(7, **SIZES, score=attn_core.scores.Dot()),
            MultiHeadDecoder(7, **SIZES, num_heads=2),
        )
        for row in sizes(type(decoder).__name__, decoder.forward, {"memory": MEMORY, "target": ids(2, 2)},
            memory=[MEMORY.states, MEMORY._replace(states=numbers(2, 3, 4), final=numbers(2, 4))],
            target=[ids(3, 2), ids(2, 2) + 3, ids(2), ids(2, 0)])
    ),
    *sizes("hard", reinforce_loss, {"model": Seq2Seq(ENCODER, HardDecoder(7, **SIZES)), "batch": None},
        model=[RECURRENT], discount=["1"], entropy_weight=[INF]),
    *sizes("context", global_context, {"x": numbers(1, 2, 3)}, x=[ids(1, 2, 3)], mask=[torch.ones(1, 2)]),
    *sizes("sentences", sentence_members, {}, sentence_numbers=[whole(0, -1)[None], whole(0, 10**9)[None]]),
    *(
        row
        for form in (HierarchicalContext(4), DynamicContext(4))
        for row in sizes(type(form).__name__, form,
            {"x": numbers(2, 3, 4), "sentence_numbers": ids(2, 3) - 4, "mask": torch.ones(2, 3) > 0},
            x=["words", numbers(2, 3, 3)],
            sentence_numbers=[torch.zeros(2, 3), ids(2, 2) - 4, [[0, 0]], ids(2, 3) - 5, ids(2, 3) + 10**9],
            mask=[torch.ones(2, 3), torch.ones(2, 2) > 0])
    ),
    *sizes("ContextAttention", ContextAttention, {"model_dim": 8, "num_heads": 2, "context_dim": 2},
        model_dim=[0], num_heads=[3], context_dim=[0]),
    *sizes("ContextAttention's call", ContextAttention(8, 2, context_dim=4),
        {"x": numbers(1, 3, 8), "context": numbers(1, 3, 4)},
        x=["word", numbers(3, 8), ids(1, 3, 8), numbers(1, 3, 8).double(), numbers(1, 3, 8, device="meta")],
        context=[None, numbers(1, 3, 3), numbers(1, 2, 4), numbers(1, 3, 4).double(), numbers(1, 3, 4, device="meta")],
        mask=[torch.ones(1, 1, 3, 2) > 0], causal=[1]),
    *sizes("ContextLayer", ContextLayer, {"config": CONFIG}, form=[nn.Identity()]),
]

images = numbers(2, 3, 8, 8)
VIT = {"config": CONFIG, "image_size": 8, "patch_size": 4}
PICTURES = [
    *sizes("patches", PatchEmbedding, {"patch_size": 4, "model_dim": 4}, patch_size=[0], model_dim=[0]),
    *sizes("patches' call", PatchEmbedding(4, 4), {}, images=[images.to(torch.uint8), images[:, :1], images[0],
        images[:0], images[..., :7]]),
    *sizes("ViT", VisionTransformer, VIT, image_size=[9]),
    *sizes("ViT's call", VisionTransformer(**VIT), {}, images=[images[..., :4, :4], images.reshape(1, 3, 16, 8)]),
    *sizes("captioner", ImageEncoder, {"image_size": 8, "memory_dim": 4}, image_size=[12], memory_dim=[1]),
    *sizes("captioner's call", ImageEncoder(image_size=8, memory_dim=4).eval(), {"images": images},
        lengths=[whole(1, 0), whole(1)]),
    *sizes("pair", ContrastivePair, {"images": None, "texts": None, "shared_dim": 2},
        temperature=[0, NAN, INF, "0.07", True], bias=[NAN, INF, "-10", True]),
    *(
        row
        for loss in (contrastive_loss, sigmoid_loss)
        for row in sizes(loss.__name__, loss, {}, logits=[numbers(2, 3), numbers(0, 0), ids(2, 2), [[1.0]]])
    ),
    *sizes("zero_shot", zero_shot, {"model": None, "images": images, "vocab": VOCAB}, captions=[[]]),
    *sizes("embed_texts", ContrastivePair(VisionTransformer(**VIT), READER, shared_dim=2).embed_texts,
        {"tokens": ids(2, 3)}, lengths=[whole(0, 3)]),
    *sizes("drawings", draw_scenes, {"count": 1}, count=[0], noise=["0.1", -0.1],
        pairs=[3, [("red", "moon")]]),
    *sizes("rollout", rollout, {}, maps=[numbers(1, 1, 0, 2, 2), numbers(1, 1, 2, 2), ids(1, 1, 1, 2, 2),
        numbers(1, 1, 1, 2, 1)]),
    *wrong("occlude", occlude, {"images": images, "patches": torch.ones(2, 4) > 0, "patch_size": 4},
        ("patches", torch.ones(2, 3) > 0), ("patches", torch.ones(2, 4)), ("patch_size", 0),
        ("patch_size", 3, "images"), ("images", images.byte())),
]

generator = torch.Generator()
PRETRAINING = [
    *sizes("mask_tokens", mask_tokens, {"tokens": ids(1, 2), "vocab_size": 9, "generator": generator},
        tokens=[numbers(2, 3), ids(1, 3) + 5], vocab_size=[7], share=[0, NAN, 1.5, "0.15", True], generator=[None]),
    *sizes("segments", SEGMENTS, {"tokens": ids(1, 2), "lengths": whole(2)},
        segments=[whole(0, 2)[None], torch.zeros(1, 2), [0, 0], ids(1, 1) * 0]),
    *sizes("SegmentEncoder's call", SEGMENTS, {"tokens": ids(2, 2)}, lengths=[whole(2)]),
    *sizes("Classifier", lambda at: Classifier(SEGMENTS, 2)(ids(2, 2), whole(2, 2), None, at), {},
        at=[whole(0, 2), whole(0, -1), whole(0), [0, 0]]),
    *sizes("MaskedLanguageModel", lambda hidden: MASKED(ids(2, 2), whole(2, 2), None, hidden), {},
        hidden=[ids(2, 2), whole(0, 1) > 0, numbers(2, 2)]),
    *sizes("masked_scores", masked_scores, {"model": MASKED}, batches=[[]]),
    *sizes("class_logits", class_logits, {"model": Classifier(SEGMENTS, 2)}, batches=[[]]),
    *sizes("masked", MaskedBatches, {"texts": whole_texts([["a"]]), "vocab": TEXTS, "batch_size": 1, "seed": 0},
        vocab=[VOCAB], texts=[[], lambda number: []], batch_size=[0]),
    *sizes("labelled", LabelledBatches, {"vocab": TEXTS, "batch_size": 1},
        texts=[[Text(["a"], label=1.5)], [Text(["a"])]]),
    *wrong("stream", StreamBatches, {"texts": [["a"]], "vocab": VOCAB, "batch_size": 1, "length": 1},
        ("vocab", ["a"]), ("length", 9, "texts"), ("length", 0), ("texts", "abc", "tokens")),
    *sizes("ClassHead", ClassHead, {"model_dim": 4}, classes=[0]),
    *sizes("two parts", two_part_texts, {}, paragraphs=[["a b"]]),
    *sizes("next sentences", next_sentences, {}, paragraphs=[None]),
    *wrong("pack", pack, {"vocab": TEXTS}, ("text", Text(["a"], at=3), "at"), ("text", Text("abc"), "tokens"),
        ("text", Text(()), "tokens")),
    *wrong("vectors", mean_vectors, {"states": numbers(1, 2, 3), "tokens": ids(1, 2)},
        ("states", [[1.0]]), ("tokens", ids(1, 3))),
    *sizes("retrieval", retrieval_accuracy, {"candidates": numbers(1, 2)}, queries=[None]),
    *sizes("repeats", draw_repeats, {"batch_size": 1, "length": 8, "vocab_size": 5, "piece": (2, 3),
        "generator": generator}, piece=[(2.5, 3), 3, (2, 7)], generator=[None]),
    *sizes("head_off", lambda layer, head: head_off(layer, head).__enter__(),
        {"layer": WRITER.stack.layers[0].attention, "head": 0}, head=[-1, 2, "0"], layer=[nn.Linear(2, 2)]),
    *sizes("induction", induction_scores, {"weights": numbers(1, 1, 2, 2)}, tokens=[None, ids(1, 4)]),
    *sizes("previous tokens", previous_token_scores, {}, weights=[numbers(1, 1, 1, 1), numbers(2, 3, 4, 5)]),
    *sizes("next_token_losses", next_token_losses, {"tokens": ids(1, 2)}, logits=[[]]),
]

BATCHES = Batches(PAIRS, VOCAB, VOCAB, batch_size=2)
LISTED = {"source_vocab": VOCAB, "target_vocab": VOCAB}
TRAINING = [
    *sizes("fit", fit, {"model": RECURRENT, "batches": BATCHES, "epochs": 1, "progress": False, "device": "cpu"},
        epochs=[-1, 1.0, True], accumulate=[0], learning_rate=[NAN, "1e-3", True], clip=[INF, None],
        warmup=[1.0, "5 %"], seed=["0", -1], precision=["bfloat16", torch.int8], validate_every=[0],
        checkpoint_every=[-1], checkpoint=[7], schedule=[1e-3], validate=[True], batches=[[]],
        model=[len, nn.Linear(2, 2).requires_grad_(False)],
        loss=["nll", lambda model, batch: 1.0, lambda model, batch: numbers(2), lambda *_: (1.0, 1)]),
    *sizes("cosine", cosine, {"steps": 1, "peak": 1.0}, steps=[0], peak=["1"], warmup=[1.0]),
    *sizes("smoothed_loss", smoothed_loss, {}, smoothing=[NAN, 1.0]),
    *sizes("Batches", Batches, {"pairs": PAIRS, **LISTED, "batch_size": 1}, pairs=[[], ["a b"]], seed=[-1, "0"],
        target_vocab=[["a"]], batch_size=[2.0]),
]

TRANSLATED = {"model": RECURRENT, "sentences": [["a"]], **LISTED}
DECODING = [
    *(
        row
        for call in (greedy, sample, beam)
        for row in sizes(call.__name__, call, {"model": RECURRENT, **read(), "max_length": 3},
            max_length=[0, -1, 2.0, "3"], source=[[[4, 5]], torch.tensor([4])], lengths=[None, torch.tensor([1])],
            begin_id=[-1], end_ids=[2, [True]])
    ),
    *sizes("beam's own", beam, {"model": RECURRENT, **read(), "max_length": 3},
        beam_size=[0], length_penalty=["1", NAN, -1.0]),
    *sizes("sample's own", sample, {"model": RECURRENT, **read(), "max_length": 3},
        pick=[lambda logits: logits[:, 0], lambda logits: logits.argmax()]),
    *sizes("Sampler", Sampler, {},
        temperature=[0, -1.0, NAN, INF, "1", True], top_k=[0, -3, 2.5, True], top_p=[0, 2, NAN, "0.9"]),
    *sizes("top_k", top_k, {"logits": numbers(2, 5)}, k=[0]),
    *sizes("top_p", top_p, {"logits": numbers(2, 5)}, p=[0.0, 1.1]),
    *wrong("Sampler's call", Sampler(), {}, ("logits", torch.tensor([[0.0, NAN]])), ("logits", torch.tensor([[-INF]]))),
    *sizes("generate", generate, {"model": WRITER, "prompts": [[4]], "max_new_tokens": 1},
        prompts=[[], [[4], []], [5, 6], "abc", ["abc"], None, torch.tensor([[1.0]]),
            *([[4, token]] for token in (4.0, -1, 7, True, "a", None))],
        max_new_tokens=[0], pick=[lambda logits: 5]),
    *sizes("translate", translate, TRANSLATED,
        sentences=["abc", ["a b"], [["a"], []], [b"a b"], [[4, 5]], [4, 5], None],
        max_length=[0], beam_size=[False, 0], batch_size=[0]),
    *sizes("teacher_forced_attention", teacher_forced_attention, {"pairs": PAIRS, **LISTED},
        model=[Seq2Seq(ENCODER, FixedContextDecoder(7, **SIZES))]),
]
