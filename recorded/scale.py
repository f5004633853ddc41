"""A Transformer on real sentences, trained in two processes: the program that the appendix on scale names.

By itself this file trains on one device or on several, and every setting is an option:

    python recorded/scale.py OUT --pairs 150000 --model-dim 256
    torchrun --standalone --nproc-per-node 4 recorded/scale.py OUT

It writes OUT/checkpoint.safetensors and OUT/result.json. After an interruption the same command continues from the
checkpoint.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attn_book.data import Batches, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.tatoeba import tatoeba_corpus
from attn_book.train import distributed, fit, smoothed_loss
from attn_book.translation import translate
from attn_core.transformer import Transformer, TransformerConfig

SEEDS = (0,)
PROCESSES = 2
SETTINGS = {
    "pairs": 20_000,
    "model-dim": 128,
    "num-layers": 2,
    "num-heads": 4,
    "feed-forward-dim": 256,
    "dropout": 0.2,
    "epochs": 10,
    "batch-size": 64,
    "learning-rate": 2e-3,
    "label-smoothing": 0.1,
    "beam-size": 4,
    "seed": 0,
}


def main(words: Sequence[str] | None = None) -> None:
    """Train and test with the settings of a command line; under ``torchrun`` every process calls it."""
    parser = argparse.ArgumentParser(description="Train a Transformer to translate English into French.")
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder for the checkpoint and the result")
    for name, default in SETTINGS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, metavar="N", help="%(default)s")
    options = parser.parse_args(words)
    if options.out == Path():
        parser.error("OUT: expected the name of a folder, got the current one")
    if not 0 <= options.seed < 2**62:
        parser.error(f"--seed: expected an integer from 0 to 2^62, got {options.seed}")
    options.out.mkdir(parents=True, exist_ok=True)
    with distributed.process_group() as device:
        result = train(options, device)
        if distributed.rank() == 0:
            (options.out / "result.json").write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")


def train(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Train one model in all processes, and report how fast it was and how well it translates."""
    data = distributed.broadcast_from_rank0(partial(tatoeba_corpus, train=options.pairs))
    vocabs = Vocab(pair.source for pair in data.train), Vocab(pair.target for pair in data.train)
    config = TransformerConfig(
        len(vocabs[1]),
        len(vocabs[0]),
        model_dim=options.model_dim,
        num_heads=options.num_heads,
        num_layers=options.num_layers,
        feed_forward_dim=options.feed_forward_dim,
        dropout=options.dropout,
        norm_first=True,
    )
    torch.manual_seed(options.seed)
    model = Transformer(config)
    history = fit(
        model,
        Batches(data.train, *vocabs, batch_size=options.batch_size, seed=options.seed),
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        loss=smoothed_loss(options.label_smoothing),
        seed=options.seed,
        device=device,
        checkpoint=options.out / "checkpoint.safetensors",
        progress=sys.stderr.isatty(),
    )
    translations = translate(model, [pair.source for pair in data.test], *vocabs, beam_size=options.beam_size)
    found, true = [t.words for t in translations], [pair.target for pair in data.test]
    tokens = options.epochs * sum(len(pair.target) + 1 for pair in data.train)
    return {
        "arguments": vars(options),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": distributed.size(),
        "threads": torch.get_num_threads(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "losses": history.losses,
        "seconds": history.seconds,
        "target_tokens_per_second": tokens / history.seconds,
        "test": {"bleu": bleu(found, true), "exact_match": exact_match(found, true)},
    }


def run(folder: Path) -> dict[str, Any]:
    """One training with the settings above, in processes of its own."""
    start = ["--standalone", "--nproc-per-node", str(PROCESSES)]
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "torch.distributed.run", *start, __file__, out]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
        result = json.loads((Path(out) / "result.json").read_text(encoding="utf-8"))
    losses = result.pop("losses")
    del result["arguments"]["out"]
    shell = f"torchrun {' '.join(start)} recorded/scale.py OUT"
    return {"shell": shell, "losses": losses[:: max(1, len(losses) // 50)], **result}


if __name__ == "__main__":
    main()
