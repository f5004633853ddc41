"""Greedy decoding from one short prompt: our language model with its cache, without it, and Hugging Face's GPT-2.

All have the same weights, so all must find the same tokens: GPT-2 is pre-norm, with learned positions, as ours is here;
ReLU stands for its GELU. Its loop is the bare one, the model called with its own cache on one token after the other,
with nothing of `generate` around it. Ours is `generate` whole, which also keeps each token's probability. All run in
inference mode.
"""

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attn_core.decode import generate
from attn_core.positions import Learned
from attn_core.transformer import LanguageModel, TransformerConfig
from benchmarks.measure import Trial, Work

SIZES: dict[str, Any] = {"model_dim": 256, "num_heads": 8, "num_layers": 4, "feed_forward_dim": 1024}
VOCAB = 1000
PROMPT = [5, 17, 400, 8, 256, 31, 99, 640]


def weights(tokens: int) -> LanguageModel:
    """The model that all others copy, with room for the prompt and so many tokens."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        room = len(PROMPT) + tokens
        config = TransformerConfig(VOCAB, **SIZES, norm_first=True)
        return LanguageModel(config, positions=lambda: Learned(room, SIZES["model_dim"])).eval()


def ours(tokens: int, device: torch.device) -> Work:
    """`generate`."""
    model = weights(tokens).to(device)

    def work() -> Tensor:
        (found,) = generate(model, [PROMPT], max_new_tokens=tokens)
        return torch.tensor(found.ids)

    return work


def uncached(tokens: int, device: torch.device) -> Work:
    """Ours, reading the whole text anew for each token."""
    model = weights(tokens).to(device)

    def work() -> Tensor:
        text = torch.tensor([PROMPT], device=device)
        for _ in range(tokens):
            text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
        return text[0, len(PROMPT) :].cpu()

    return work


def gpt2(tokens: int, device: torch.device) -> Work:
    """Hugging Face's `GPT2LMHeadModel` and its cache.

    Raises ImportError where transformers is not installed.
    """
    transformers = importlib.import_module("transformers")
    config = transformers.GPT2Config(
        vocab_size=VOCAB,
        n_positions=len(PROMPT) + tokens,
        n_embd=SIZES["model_dim"],
        n_layer=SIZES["num_layers"],
        n_head=SIZES["num_heads"],
        n_inner=SIZES["feed_forward_dim"],
        activation_function="relu",
        tie_word_embeddings=False,  # our embedding is scaled where it reads and not where it scores
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    copied = as_gpt2(weights(tokens))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(copied[name])
    model = model.to(device)

    def work() -> Tensor:
        token, cache, found = torch.tensor([PROMPT], device=device), None, []
        for _ in range(tokens):
            out = model(token, past_key_values=cache, use_cache=True)
            token, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            found.append(token)
        return torch.cat(found, dim=1)[0].cpu()

    return work


def as_gpt2(model: LanguageModel) -> dict[str, Tensor]:
    """Our weights by GPT-2's names; its linear layers keep theirs transposed, and q, k and v in one."""
    own = model.state_dict()
    table = own["embedding.tokens.weight"]
    found = {
        "transformer.wte.weight": table * math.sqrt(table.shape[1]),
        "transformer.wpe.weight": own["embedding.positions.weight"],
        "lm_head.weight": table,
    }
    names = {"transformer.ln_f": ["stack.norm"]}
    for i in range(SIZES["num_layers"]):
        theirs, here = f"transformer.h.{i}", f"stack.layers.{i}"
        names |= {
            f"{theirs}.ln_1": [f"{here}.add_attention.norm"],
            f"{theirs}.attn.c_attn": [f"{here}.attention.{part}" for part in ("query", "key", "value")],
            f"{theirs}.attn.c_proj": [f"{here}.attention.out"],
            f"{theirs}.ln_2": [f"{here}.add_feed_forward.norm"],
            f"{theirs}.mlp.c_fc": [f"{here}.feed_forward.hidden"],
            f"{theirs}.mlp.c_proj": [f"{here}.feed_forward.out"],
        }
    for theirs, parts in names.items():
        for kind in ("weight", "bias"):
            found[f"{theirs}.{kind}"] = torch.cat([own[f"{part}.{kind}"] for part in parts]).t()
    return found


def inferring(make: Callable[[], Work]) -> Work:
    """A work that runs in inference mode."""
    work = make()

    def run() -> Tensor:
        with torch.inference_mode():
            found: Tensor = work()
        return found.clone()

    return run


def report(works: Mapping[str, Any], seconds: Mapping[str, list[float]], tokens: int) -> dict[str, Any]:
    """Each contender's rate, and the peer's version."""
    rates = {name: {"tokens_per_second": round(tokens / sorted(s)[len(s) // 2])} for name, s in seconds.items()}
    if "Hugging Face GPT-2" in works:
        rates["Hugging Face GPT-2"]["transformers"] = importlib.import_module("transformers").__version__
    return rates


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """One prompt."""
    tokens = 8 if quick else 256

    def contender(make: Callable[[int, torch.device], Work]) -> Callable[[], Work]:
        return functools.partial(inferring, functools.partial(make, tokens, device))

    return [
        Trial(
            "one prompt",
            {"B": 1, "prompt": len(PROMPT), "tokens": tokens, "vocab": VOCAB, **SIZES},
            torch.float32,
            ours={"generate": contender(ours)},
            peers={"without a cache": contender(uncached), "Hugging Face GPT-2": contender(gpt2)},
            rounds=9,
            report=functools.partial(report, tokens=tokens),
        )
    ]
