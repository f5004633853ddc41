"""The command line: train a translator from English to French, in one process or, under ``torchrun``, in many."""

import argparse
import datetime
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

import attn_core
from attn_core.data import Batches, Corpus, Vocab, corpus, tatoeba_corpus
from attn_core.decode import translate
from attn_core.mechanisms.additive import AdditiveAttention
from attn_core.mechanisms.dense import Dense
from attn_core.metrics import bleu, exact_match
from attn_core.positions import ALiBi, Learned, Rotary, Sinusoidal
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.train import History, distributed, fit, inverse_square_root, smoothed_loss, target_loss
from attn_core.transformer import Transformer, TransformerConfig

MECHANISMS: dict[str, Callable[[int], Any]] = {
    "dense": lambda head_dim: Dense(),
    "additive": lambda head_dim: AdditiveAttention(head_dim, head_dim),
}
POSITIONS: dict[str, Callable[[TransformerConfig, int], nn.Module]] = {
    "sinusoidal": lambda config, length: Sinusoidal(config.model_dim),
    "rotary": lambda config, length: Rotary(config.model_dim // config.num_heads),
    "alibi": lambda config, length: ALiBi(config.num_heads),
    "learned": lambda config, length: Learned(length, config.model_dim),
}
CORPORA: dict[str, Callable[..., Corpus]] = {
    "grammar": partial(corpus, structures=0, pronouns=0),
    "tatoeba": tatoeba_corpus,
}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TRANSFORMER = {
    "mechanism": "dense",
    "positions": "sinusoidal",
    "num_heads": 4,
    "num_kv_heads": None,
    "feed_forward_dim": 256,
    "norm_first": False,
}
"""The defaults of what no other model has."""
LEARNING_RATE = 4e-3
MAX_LENGTH = 100
"""The longest translation, in tokens."""
FREE = ("threads", "beam_size")
"""What may change when a run goes on."""


class Parser(argparse.ArgumentParser):
    """Errors in one line, from the first process only."""

    def error(self, message: str, code: int = 2) -> NoReturn:
        """Say what is wrong, and end."""
        self.exit(code, f"{self.prog}: error: {message}\n" if distributed.rank() == 0 else None)


def parser() -> Parser:
    """All options, in groups."""
    size = _number(int, lambda number: number >= 1, "an integer of at least 1")
    count = _number(int, lambda number: number >= 0, "an integer of at least 0")
    share = _number(float, lambda number: 0 <= number < 1, "a share in [0, 1)")
    positive = _number(float, lambda number: 0 < number < math.inf, "a finite number above 0")
    made = Parser(
        prog="python -m attn_core.train",
        description="Train a translator from English to French, and test it. The same command again goes on with a "
        "run that was stopped. In N processes: torchrun --standalone --nproc-per-node N -m attn_core.train ...",
        epilog="What stands last in a line is the default.",
        allow_abbrev=False,
    )
    files = "folder for checkpoint.safetensors, vocabularies.json and result.json; made where it is missing"
    made.add_argument("out", type=Path, metavar="OUT", help=files)

    add = made.add_argument_group("data").add_argument
    add("--corpus", choices=CORPORA, default="grammar", help="our sentences, or real ones from Tatoeba; %(default)s")
    add("--pairs", type=size, default=20_000, metavar="N", help="for training; %(default)s")
    add("--held-out", type=size, default=1_000, metavar="N", help="for validation, as many for the test; %(default)s")

    add = made.add_argument_group("model").add_argument
    add("--model", choices=("transformer", "bahdanau"), default="transformer", help="%(default)s")
    add("--model-dim", type=size, default=64, metavar="C", help="of embeddings and layers; %(default)s")
    add("--num-layers", type=size, default=2, metavar="N", help="of encoder and decoder each; %(default)s")
    add("--dropout", type=share, default=0.1, metavar="P", help="in [0, 1); %(default)s")

    add = made.add_argument_group("only for --model transformer").add_argument
    add("--mechanism", choices=MECHANISMS, help="of every attention; dense")
    add("--positions", choices=POSITIONS, help="added to the embeddings, or inside the scores; sinusoidal")
    add("--num-heads", type=size, metavar="H", help="divides C; 4")
    add("--num-kv-heads", type=size, metavar="G", help="divides H; H")
    add("--feed-forward-dim", type=size, metavar="F", help="256")
    add("--norm-first", action="store_true", default=None, help="norms before the sublayers; after them")

    training = made.add_argument_group("training")
    rate, add = training.add_mutually_exclusive_group().add_argument, training.add_argument
    add("--epochs", type=size, default=10, metavar="N", help="%(default)s")
    add("--batch-size", type=size, default=64, metavar="B", help="of all processes together; %(default)s")
    add("--accumulate", type=size, default=1, metavar="N", help="batches that make one step together; %(default)s")
    rate("--learning-rate", type=positive, metavar="R", help=f"the highest, of a cosine; {LEARNING_RATE}")
    rate("--warmup-steps", type=size, metavar="N", help="the paper's rate in the cosine's place: rises so long; none")
    add("--scale", type=positive, metavar="X", help="multiplies the paper's rate; 1")
    add("--label-smoothing", type=share, default=0.0, metavar="E", help="in [0, 1); %(default)s")
    add("--precision", choices=PRECISIONS, help="of products; bfloat16 on CUDA devices, float32 elsewhere")
    add("--seed", type=count, default=0, metavar="N", help="of weights, order and dropout, not of data; %(default)s")
    add("--threads", type=size, metavar="N", help="on the CPU, of each process; as PyTorch chooses")

    add = made.add_argument_group("test").add_argument
    add("--beam-size", type=size, default=4, metavar="K", help="1 is greedy; %(default)s")
    return made


def main(words: Sequence[str] | None = None) -> None:
    """Train, test, and write what came out; every process calls it, and the first one writes and prints."""
    commands = parser()
    with distributed.process_group() as device:
        arguments = _completed(commands, commands.parse_args(words))
        first, processes = distributed.rank() == 0, distributed.size()
        if arguments.threads is not None:
            torch.set_num_threads(arguments.threads)
        try:
            sizes = {"train": arguments.pairs, "valid": arguments.held_out, "test": arguments.held_out}
            data = distributed.by_first(partial(CORPORA[arguments.corpus], **sizes))
            vocabs = Vocab(p.source for p in data.train), Vocab(p.target for p in data.train)
            torch.manual_seed(arguments.seed)
            model = _build(arguments, data, vocabs)
            distributed.by_first(partial(_claim, arguments, vocabs))
            history = _train(arguments, model, data, vocabs, device)
        except ValueError as error:
            commands.error(str(error))
        except (OSError, FloatingPointError) as error:
            commands.error(str(error), code=1)
    if not first:
        return
    versions = {"attn_core": attn_core.__version__, "torch": torch.__version__, "python": platform.python_version()}
    options = {"beam_size": arguments.beam_size, "max_length": MAX_LENGTH}
    found = [t.words for t in translate(model, [p.source for p in data.test], *vocabs, **options)]
    wanted = [p.target for p in data.test]
    tokens = arguments.epochs * sum(len(p.target) + 1 for p in data.train)
    result = {
        "arguments": _settings(arguments),
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": history.losses,
        "validation": history.validation,
        "seconds": history.seconds,
        "target_tokens_per_second": tokens / history.seconds,
        "test": {"bleu": bleu(found, wanted), "exact_match": exact_match(found, wanted)},
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }
    _write(arguments.out / "result.json", result)
    print(
        f"{len(history.losses)} steps in {history.seconds:.1f} s, {result['target_tokens_per_second']:.0f} target "
        f"tokens/s; validation loss {history.validation[-1]['loss']:.3f} nats per token; "
        f"test BLEU {result['test']['bleu']:.1f}, exact {100 * result['test']['exact_match']:.1f} %"
    )


def _completed(commands: Parser, arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments with the defaults that depend on others."""
    given = vars(arguments)
    for name, default in TRANSFORMER.items():
        if arguments.model == "transformer":
            given[name] = default if given[name] is None else given[name]
        elif given[name] is not None:
            commands.error(f"argument --{name.replace('_', '-')}: only for --model transformer")
    if arguments.warmup_steps is None:
        if arguments.scale is not None:
            commands.error("argument --scale: only with --warmup-steps")
        arguments.learning_rate = arguments.learning_rate or LEARNING_RATE
    else:
        arguments.scale = arguments.scale or 1.0
    return arguments


def _build(arguments: argparse.Namespace, data: Corpus, vocabs: tuple[Vocab, Vocab]) -> nn.Module:
    source_size, target_size = map(len, vocabs)
    size, layers, dropout = arguments.model_dim, arguments.num_layers, arguments.dropout
    if arguments.model == "bahdanau":
        encoder = Encoder(source_size, embed_dim=size, hidden_dim=size, num_layers=layers, dropout=dropout)
        sizes = {"embed_dim": size, "hidden_dim": 2 * size, "memory_dim": encoder.memory_dim, "num_layers": layers}
        return Seq2Seq(encoder, BahdanauDecoder(target_size, **sizes, dropout=dropout))
    config = TransformerConfig(
        target_size,
        source_size,
        model_dim=size,
        num_heads=arguments.num_heads,
        num_kv_heads=arguments.num_kv_heads,
        num_layers=layers,
        feed_forward_dim=arguments.feed_forward_dim,
        dropout=dropout,
        norm_first=arguments.norm_first,
    )
    pairs = (*data.train, *data.valid, *data.test)
    length = max(MAX_LENGTH, *(max(len(p.source), len(p.target)) + 1 for p in pairs))
    mechanism = partial(MECHANISMS[arguments.mechanism], size // config.num_heads)
    positions = partial(POSITIONS[arguments.positions], config, length)
    factories = {f"{part}_mechanism": mechanism for part in ("encoder", "decoder", "cross")}
    try:
        return Transformer(config, **factories, positions=positions)
    except ValueError as error:  # of an odd size
        raise ValueError(f"positions: {arguments.positions} does not fit; {error}") from None


def _claim(arguments: argparse.Namespace, vocabs: tuple[Vocab, Vocab]) -> None:
    """Write into OUT what is to be trained, unless it says there that something else is."""
    folder, result, settings = arguments.out, arguments.out / "result.json", _settings(arguments)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = json.loads(result.read_text(encoding="utf-8"))["arguments"] if result.exists() else settings
        wrong = [
            f"{name}: expected {before.get(name)}, got {value}"
            for name, value in settings.items()
            if before.get(name) != value and name not in FREE
        ]
        if wrong:
            raise ValueError(f"OUT: {folder} holds another run; {'; '.join(wrong)}")
        if not result.exists():
            _write(folder / "vocabularies.json", {"source": vocabs[0].tokens, "target": vocabs[1].tokens})
            _write(result, {"arguments": settings})
    except OSError as error:
        raise ValueError(f"OUT: expected a folder to write in, got {folder}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, AttributeError, KeyError, TypeError):
        raise ValueError(f"OUT: expected a result.json of this command or none, got another: {result}") from None


def _train(
    arguments: argparse.Namespace, model: nn.Module, data: Corpus, vocabs: tuple[Vocab, Vocab], device: torch.device
) -> History:
    schedule, steps = None, arguments.warmup_steps
    if steps is not None:
        schedule = inverse_square_root(arguments.model_dim, warmup_steps=steps, scale=arguments.scale)
    held_out = Batches(data.valid, *vocabs, batch_size=256)
    return fit(
        model,
        Batches(data.train, *vocabs, batch_size=arguments.batch_size, seed=arguments.seed),
        epochs=arguments.epochs,
        learning_rate=arguments.learning_rate or LEARNING_RATE,
        schedule=schedule,
        accumulate=arguments.accumulate,
        seed=arguments.seed,
        device=device,
        precision=PRECISIONS.get(arguments.precision),
        loss=smoothed_loss(arguments.label_smoothing),
        validate=lambda model: _held_out_loss(model, held_out, device),
        checkpoint=arguments.out / "checkpoint.safetensors",
        progress=sys.stderr.isatty(),
    )


def _held_out_loss(model: nn.Module, batches: Batches, device: torch.device) -> dict[str, float]:
    """Nats per target token, without smoothing."""
    total = tokens = 0.0
    for batch in batches:
        count = int(batch.target_lengths.sum())
        total, tokens = total + count * target_loss(model, batch.to(device)).item(), tokens + count
    return {"loss": total / tokens}


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(arguments).items() if name != "out"}


def _write(path: Path, content: dict[str, Any]) -> None:
    """JSON, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.partial")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def _number(read: Callable[[str], Any], fits: Callable[[Any], bool], wanted: str) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        try:
            found = read(text)
        except ValueError:
            found = math.nan
        if not fits(found):
            raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
        return found

    return number


if __name__ == "__main__":
    main()
