"""Models from safetensors files: small ones that are written here, MiniLM itself, and the same in transformers."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from attn_book.pretrain import LabelledBatches, MaskedBatches, Text, pack, whole_texts
from attn_book.published import minilm_files
from attn_book.word_pieces import WordPieces
from attn_core import capture_attention
from attn_core.positions import Interpolation, YaRN
from attn_core.pretrained import load_safetensors
from attn_core.transformer import LanguageModel, SegmentEncoder

tokenizers = pytest.importorskip(
    "tokenizers", reason="tokenizers is not installed: pip install --no-deps -r requirements/models.txt"
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


def written(folder, layout, *, tensors=None, tokenizer=True, **changes):
    """A checkpoint: the file of its parameters, with the other files beside it; ``changes`` are settings."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG[layout] | changes
    save_file(parameters(layout) if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
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


def heads(q, k, v, *, causal, base=None, factor=1.0):
    """The heads' outputs side by side, and the maps: a loop over heads and queries."""
    n, out, maps = len(q), torch.zeros(len(q), C, dtype=torch.float64), []
    for h in range(HEADS):
        own, shared = slice(h * D, (h + 1) * D), slice(h * k.shape[1] // C * D, (h * k.shape[1] // C + 1) * D)
        q_h, k_h = q[:, own], k[:, shared]
        if base:
            q_h, k_h = (torch.stack([half_split(row, i / factor, base) for i, row in enumerate(x)]) for x in (q_h, k_h))
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


def llama(t, tokens, factor=1.0):
    x, maps = t["model.embed_tokens.weight"][tokens], []
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        normed = rms_norm(x, t, at + "input_layernorm")
        out, weights = heads(
            *(linear(normed, t, f"{at}self_attn.{name}_proj") for name in "qkv"), causal=True, base=50.0, factor=factor
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_model_can_be_trained_and_saved(tmp_path, layout):
    model, _ = load_safetensors(written(tmp_path, layout), layout)
    inputs = (TOKENS[None], torch.tensor([7])) if layout == "bert" else (TOKENS[None],)
    model(*inputs).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    save_file(model.state_dict(), tmp_path / "ours.safetensors")  # refuses tensors that share memory
    assert all(parameter.dtype == torch.float32 and parameter.is_contiguous() for parameter in model.parameters())


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


@pytest.mark.parametrize("layout", ["gpt2", "llama"])
def test_a_stored_matrix_of_logits_has_to_be_the_embedding(tmp_path, layout):
    embedding = {"gpt2": "wte.weight", "llama": "model.embed_tokens.weight"}[layout]
    tensors = parameters(layout)
    head = tensors | {"lm_head.weight": tensors[embedding].clone()}
    load_safetensors(written(tmp_path, layout, tensors=head, tie_word_embeddings=False), layout)
    head["lm_head.weight"] += 1
    with pytest.raises(ValueError, match="expected lm_head.weight to be the embedding, got another matrix"):
        load_safetensors(written(tmp_path, layout, tensors=head), layout)
    with pytest.raises(ValueError, match="expected tie_word_embeddings to be True, got False"):
        load_safetensors(written(tmp_path, layout, tie_word_embeddings=False), layout)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("changes", "base", "scaling"),
    [
        ({"rope_theta": None}, 10_000.0, None),
        ({"rope_parameters": {"rope_theta": 70.0, "rope_type": "default"}}, 70.0, None),
        ({"rope_scaling": None, "rope_parameters": {}}, 50.0, None),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 50.0, Interpolation(4.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, 50.0, Interpolation(4)),
        ({"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4.0}}, 50.0, Interpolation(4.0)),
        ({"rope_scaling": {"rope_type": "llama3"} | LLAMA3}, 50.0, YaRN(8, 64, slow=1, fast=4, magnitude=1)),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 7.0} | LLAMA3}, 7.0,
         YaRN(8, 64, fast=4, magnitude=1)),
    ],
)  # fmt: skip
def test_rotary_settings_of_newer_and_older_files(tmp_path, changes, base, scaling):
    model = load_safetensors(written(tmp_path, "llama", **changes), "llama").model
    positions = model.stack.layers[1].attention.positions
    assert (positions.base, positions.scaling) == (base, scaling)


@torch.no_grad()
def test_scaled_positions_and_another_head_size_compute_what_a_loop_does(tmp_path):
    path = written(tmp_path / "scaled", "llama", rope_scaling={"type": "linear", "factor": 4.0})
    expected, _ = llama({name: x.double() for name, x in parameters("llama").items()}, TOKENS, factor=4.0)
    model = load_safetensors(path, "llama").model.double()
    torch.testing.assert_close(model(TOKENS[None])[0], expected, atol=1e-9, rtol=1e-9)
    tensors = parameters("llama")  # of four heads, of which two have no way out: the same as two heads of size 4
    for name in tensors:
        if "o_proj" in name:
            tensors[name][:, 8:] = 0
    expected, _ = llama({name: x.double() for name, x in tensors.items()}, TOKENS)
    kept = {"q_proj": slice(8), "k_proj": slice(4), "v_proj": slice(4), "o_proj": (slice(None), slice(8))}
    tensors = {name: x[kept.get(name.split(".")[-2], ...)].clone() for name, x in tensors.items()}
    sizes = {"head_dim": D, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = load_safetensors(written(tmp_path / "heads", "llama", tensors=tensors, **sizes), "llama").model.double()
    torch.testing.assert_close(model(TOKENS[None])[0], expected, atol=1e-9, rtol=1e-9)


def test_sizes_that_newer_and_older_files_leave_out(tmp_path):
    tensors = parameters("llama")
    for name in [name for name in tensors if "k_proj" in name or "v_proj" in name]:
        tensors[name] = torch.ones(C, C)
    path = written(tmp_path, "llama", tensors=tensors, num_key_value_heads=None)
    assert load_safetensors(path, "llama").model.stack.layers[0].attention.num_kv_heads == HEADS
    path = written(tmp_path, "gpt2", n_inner=None)
    with pytest.raises(ValueError, match=r"h.0.mlp.c_fc.weight of shape \(16, 64\), got \(16, 24\)"):
        load_safetensors(path, "gpt2")


# What published files say beside that.
NOTES = {
    "architectures": ["X"], "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "_name_or_path": "x",
    "use_cache": True, "id2label": {"0": "x"}, "task_specific_params": {"x": {"max_length": 50}}, "pruned_heads": {},
    "bos_token_id": 1, "pad_token_id": 2, "initializer_range": 0.02, "hidden_dropout_prob": 0.1,
}  # fmt: skip
MORE_NOTES = {
    "bert": {"gradient_checkpointing": False, "directionality": "bidi", "pooler_type": "first_token_transform"},
    "gpt2": {"attn_pdrop": 0.1, "n_ctx": 9, "summary_type": "cls_index", "reorder_and_upcast_attn": False},
    "llama": {"max_position_embeddings": 9, "pretraining_tp": 1, "rope_interleaved": False, "is_llama_config": True,
              "attention_dropout": 0.0, "head_dim": D, "mlp_bias": False, "transformers.js_config": {"x": {"y": 1}}},
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tokens_that_end_a_text_and_what_changes_nothing(tmp_path, layout):
    notes = NOTES | MORE_NOTES[layout]
    path, ends = written(tmp_path, layout, **notes), layout != "bert"
    assert load_safetensors(path, layout).end_ids == ()
    assert load_safetensors(written(tmp_path, layout, eos_token_id=2), layout).end_ids == (2,) * ends
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 2], "top_p": 0.9}')
    assert load_safetensors(written(tmp_path, layout, eos_token_id=[2, 7]), layout).end_ids == (4, 2, 7) * ends


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


WRONG = {
    "bert": {
        "model_type": ["roberta"],
        "hidden_act": ["relu", {"x": 1}],
        "position_embedding_type": ["relative_key"],
        "is_decoder": [True],
        "type_vocab_size": [1],
        "hidden_size": [{"x": 1}, "16"],
        "layer_norm_eps": [None],
    },
    "gpt2": {
        "activation_function": ["relu"],
        "scale_attn_weights": [False],
        "scale_attn_by_inverse_layer_idx": [True],
        "add_cross_attention": [True],
        "n_inner": [0],
    },
    "llama": {
        "attention_bias": [True],
        "mlp_bias": [True],
        "hidden_act": ["gelu"],
        "partial_rotary_factor": [0.5],
        "layer_types": [["full_attention", "sliding_attention"]],
        "sliding_window": [4],
        "quantization_config": [{"bits": 4}],
        "rope_scaling": [{"factor": 8.0}, {"type": "linear"}, {"type": "linear", "factor": 0},
                         {"type": "linear", "rope_type": "default"}],
        "rope_parameters": [{"rope_type": "yarn", "rope_theta": 1.0}, {"full_attention": {"rope_theta": 1.0}}],
        "rope_theta": [True],
        "head_dim": [3],
        "eos_token_id": [VOCAB, [1, "x"]],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "changes", "name"),
    [
        *(
            (layout, {name: value}, name)
            for layout, settings in WRONG.items()
            for name, values in settings.items()
            for value in values
        ),
        ("bert", {"num_attention_heads": 3}, "num_heads"),
        (
            "llama",
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
            "rope_parameters.rope_type",
        ),
        ("bert", {"text_config": {"x": 1}, "vocab_size": None}, "vocab_size, got .*text_config.x"),
    ],
)
def test_settings_that_the_model_has_not_are_named(tmp_path, layout, changes, name):
    path = written(tmp_path, layout, **changes)
    with pytest.raises(ValueError, match=f"^{tmp_path}/config.json: .*{name}"):
        load_safetensors(path, layout)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"5", b"null", b"\xff", b"version https://git-lfs.github.com/"])
def test_damaged_files_are_named(tmp_path, file, content):
    path = written(tmp_path, "gpt2")
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=f"/{file}: expected .*, got .*" + "Git LFS" * content.startswith(b"version")):
        load_safetensors(path, "gpt2")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_a_format_that_is_no_floating_one_is_named(tmp_path, dtype):
    tensors = parameters("gpt2")
    tensors["h.1.ln_1.weight"] = torch.ones(C).to(dtype)
    with pytest.raises(ValueError, match="model.safetensors: expected h.1.ln_1.weight as F64, .*, got [IUBF]"):
        load_safetensors(written(tmp_path, "gpt2", tensors=tensors), "gpt2")


@pytest.mark.parametrize(
    "name", ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "model.safetensors"]
)
def test_shards_are_refused(tmp_path, name):
    path = written(tmp_path, "bert")
    path.rename(tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(ValueError, match=f"{name}: expected one file with all parameters, got a shard"):
        load_safetensors(tmp_path / name, "bert")


def test_a_cut_file_is_named_and_one_of_one_shards_is_read(tmp_path):
    path = written(tmp_path, "bert")
    whole = path.read_bytes()
    for length in (4, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="model.safetensors: expected a safetensors file, got"):
            load_safetensors(path, "bert")
    path = tmp_path / "model-00001-of-00001.safetensors"
    path.write_bytes(whole)
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
