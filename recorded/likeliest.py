"""What SmolLM2 writes when the likeliest text is searched for and when tokens are drawn, beside what people wrote.

The prompts are pieces of this book, which SmolLM2 cannot have read, and each has the true continuation beside it. Also
the weights of SmolLM2's heads on the repeated sequences that the chapter on the next token uses.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_book.data import Vocab
from attn_book.induction import draw_repeats, induction_scores, next_token_losses, previous_token_scores
from attn_book.microscope import all_maps
from attn_book.published import smollm2_file
from attn_core.decode import Sampler, beam, sample
from attn_core.decode.pick import argmax
from attn_core.pretrained import load_gguf
from recorded.bahdanau import rounded

SEEDS = (0,)
PROMPTS, PROMPT, CONTINUATION = 12, 32, 64  # how many, and tokens
BEAM = 4
SAMPLERS: dict[str, dict[str, Any]] = {"top-p 0.9": {"top_p": 0.9}, "temperature 1": {}}
SYMBOLS, LENGTH, PIECE, ROWS = 64, 48, (12, 20), 32  # as in recorded/induction.py, with fewer rows
CHAPTERS = Path(__file__).parents[1] / "chapters"
PAGES = ("01_pooling", "10_flash", "11_kv_cache", "15_recurrent")


class Continuing:
    """A language model as the searches want it: its sources are prompts of one length, and its texts do not end."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def init_state(self, source: Tensor, lengths: Tensor) -> Any:
        self.last: Tensor | None = source[:, -1]
        return self.model.prefill(source[:, :-1], lengths - 1)[1]

    def step(self, tokens: Tensor, state: Any) -> Any:
        if self.last is not None:  # the first token is <bos>, in the place of the prompt's last one
            tokens, self.last = self.last.repeat_interleave(len(tokens) // len(self.last)), None
        logits, state = self.model.step(tokens, state)
        return logits.index_fill(-1, torch.tensor([Vocab.EOS]), -torch.inf), state


def prose(path: Path) -> str:
    """The plain paragraphs of a page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    paragraphs = (" ".join(part.replace("*", "").split()) for part in text.split("\n\n"))
    plain = (part for part in paragraphs if len(part) > 150 and not set(part) & set("{$:|#`<["))
    return "\n\n".join(part for part in plain if not part.startswith(("It takes", "You need", "- ")))


def continuations(model: Any, prompts: Tensor) -> dict[str, list[list[int]]]:
    """What each way of choosing tokens writes after each prompt."""
    found, lengths = {}, torch.full((len(prompts),), prompts.shape[1])
    picks = {"greedy": argmax} | {
        name: Sampler(generator=torch.Generator().manual_seed(number), **settings)
        for number, (name, settings) in enumerate(SAMPLERS.items(), SEEDS[0])
    }
    for name, pick in picks.items():
        written = sample(Continuing(model), prompts, lengths, max_length=CONTINUATION, pick=pick)
        found[name] = [one.ids for one in written]
        print(name, flush=True)
    written = beam(Continuing(model), prompts, lengths, max_length=CONTINUATION, beam_size=BEAM)
    return {"greedy": found.pop("greedy"), f"beam {BEAM}": [one.ids for one in written]} | found


def repeated(ids: list[int], run: int = 4) -> float:
    """The share of the runs of four tokens that have come before in the same text.

    Source: Welleck et al. 2020, who call it seq-rep-4.
    """
    runs = [tuple(ids[i : i + run]) for i in range(len(ids) - run + 1)]
    return 1 - len(set(runs)) / len(runs)


@torch.no_grad()
def judged(model: Any, tokenizer: Any, prompts: Tensor, written: list[list[int]]) -> dict[str, Any]:
    """The texts of one way, how much of each is repetition, and the loss of each of their tokens."""
    losses = []
    for prompt, ids in zip(prompts.tolist(), written, strict=True):
        tokens = torch.tensor([prompt + ids])
        losses.append(next_token_losses(model(tokens), tokens)[0, len(prompt) - 1 :].tolist())
    texts = [tokenizer.decode(ids) for ids in written]
    return {"texts": texts, "repeated": [repeated(ids) for ids in written], "losses": losses}


def heads(model: Any) -> dict[str, Any]:
    """The scores of all heads on repeated sequences, and the weights of the best induction head on one of them."""
    symbols = torch.randint(100, model.config.vocab_size, (SYMBOLS,), generator=torch.Generator().manual_seed(0))
    rows = draw_repeats(ROWS, LENGTH, SYMBOLS, piece=PIECE, generator=torch.Generator().manual_seed(1234)).tokens
    maps = all_maps(model, symbols[rows])
    scores = [induction_scores(layer, rows) for layer in maps]
    layer, head = divmod(int(torch.stack(scores).argmax()), scores[0].numel())
    one = draw_repeats(1, 30, SYMBOLS, piece=(8, 10), generator=torch.Generator().manual_seed(5)).tokens
    weights = all_maps(model, symbols[one])[layer, 0, head]
    return {
        "induction": torch.stack(scores).tolist(),
        "previous": [previous_token_scores(layer).tolist() for layer in maps],
        "best": {"layer": layer, "head": head, "tokens": one[0].tolist(), "weights": weights.tolist()},
    }


def run(folder: Path) -> dict[str, Any]:
    """Every way of choosing tokens after every prompt, and the heads."""
    torch.set_num_threads(1)
    started = time.process_time()
    model, tokenizer = load_gguf(smollm2_file())
    model.eval()
    ids = tokenizer.encode("\n\n".join(prose(CHAPTERS / f"{page}.ipynb") for page in PAGES)).ids
    pieces = torch.tensor(ids).split(PROMPT + CONTINUATION)[:PROMPTS]
    prompts = torch.stack([piece[:PROMPT] for piece in pieces])
    ways = {"written by people": [piece[PROMPT:].tolist() for piece in pieces]} | continuations(model, prompts)
    found = {name: rounded(judged(model, tokenizer, prompts, written)) for name, written in ways.items()}
    about = {"prompt_tokens": PROMPT, "continuation_tokens": CONTINUATION, "beam_size": BEAM, "threads": 1}
    return {
        "setting": about,
        "prompts": [tokenizer.decode(prompt) for prompt in prompts.tolist()],
        "ways": found,
        "heads": rounded(heads(model)),
        "cpu_seconds": round(time.process_time() - started, 1),
    }
