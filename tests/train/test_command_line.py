import json
import zipfile
from itertools import count

import pytest
import torch

from attn_core.checkpoint import load
from attn_core.data import Batches, Vocab, corpus
from attn_core.decode import translate
from attn_core.metrics import bleu, exact_match
from attn_core.train import __main__ as command
from attn_core.train import fit, inverse_square_root, smoothed_loss, target_loss
from attn_core.transformer import Transformer, TransformerConfig

TINY = ["--pairs", "20", "--held-out", "4", "--batch-size", "8", "--epochs", "1", "--beam-size", "1"]
SMALL = ["--model-dim", "16", "--num-layers", "1"]
NAMES = ["checkpoint.safetensors", "result.json", "vocabularies.json"]


def result(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def refused(capsys, *words):
    """The one line that it says, in the place of training."""
    with pytest.raises(SystemExit) as stopped:
        command.main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and out == "" and err.count("\n") == 1
    return err.removeprefix("python -m attn_core.train: error: ").rstrip()


def test_the_result_is_what_fit_gives(tmp_path, capsys):
    folder = tmp_path / "made" / "here"
    words = ["--pairs", "50", "--held-out", "6", "--batch-size", "8", "--epochs", "3", "--accumulate", "2", *SMALL]
    words += ["--feed-forward-dim", "24", "--num-heads", "2", "--num-kv-heads", "1", "--norm-first", "--dropout", "0.2"]
    words += ["--warmup-steps", "5", "--scale", "0.5", "--label-smoothing", "0.1", "--precision", "bfloat16"]
    threads = torch.get_num_threads()
    try:
        command.main([str(folder), *words, "--seed", "3", "--threads", "1", "--beam-size", "2"])
        data = corpus(train=50, valid=6, test=6, structures=0, pronouns=0)
        source, target = Vocab(p.source for p in data.train), Vocab(p.target for p in data.train)
        torch.manual_seed(3)
        sizes = {"model_dim": 16, "num_heads": 2, "num_kv_heads": 1, "num_layers": 1, "feed_forward_dim": 24}
        model = Transformer(TransformerConfig(len(target), len(source), **sizes, dropout=0.2, norm_first=True))
        history = fit(
            model,
            Batches(data.train, source, target, batch_size=8, seed=3),
            epochs=3,
            schedule=inverse_square_root(16, warmup_steps=5, scale=0.5),
            accumulate=2,
            seed=3,
            precision=torch.bfloat16,
            loss=smoothed_loss(0.1),
            progress=False,
        )
    finally:
        torch.set_num_threads(threads)
    made = result(folder)
    assert made["losses"] == history.losses and len(history.losses) == 3 * 4
    model.eval().cpu()
    held_out = Batches(data.valid, source, target, batch_size=6)
    (batch,) = held_out
    assert made["validation"][-1]["loss"] == pytest.approx(target_loss(model, batch).item(), rel=1e-5)
    assert [record["step"] for record in made["validation"]] == [4, 8, 12]
    found = [t.words for t in translate(model, [p.source for p in data.test], source, target, beam_size=2)]
    wanted = [p.target for p in data.test]
    assert made["test"] == {"bleu": bleu(found, wanted), "exact_match": exact_match(found, wanted)}
    assert made["parameters"] == sum(p.numel() for p in model.parameters())
    tokens = sum(
        int(batch.target_lengths.sum())
        for n in range(3)
        for batch in Batches(data.train, source, target, batch_size=8).epoch(n)
    )
    assert made["target_tokens_per_second"] * made["seconds"] == pytest.approx(tokens)
    assert made["processes"] == made["threads"] == 1 and made["versions"]["torch"] == torch.__version__
    assert made["arguments"]["scale"] == 0.5 and made["arguments"]["learning_rate"] is None
    vocabularies = json.loads((folder / "vocabularies.json").read_text(encoding="utf-8"))
    assert vocabularies == {"source": list(source.tokens), "target": list(target.tokens)}
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    assert "test BLEU" in capsys.readouterr().out


def test_every_name_trains_a_model_of_its_own(tmp_path):
    choices = [["--mechanism", name] for name in command.MECHANISMS]
    choices += [["--positions", name] for name in command.POSITIONS]
    losses, parameters = {}, {}
    for words in (*choices, ["--model", "bahdanau"]):
        command.main([str(tmp_path / words[1]), *TINY, *SMALL, *words])
        losses[words[1]] = result(tmp_path / words[1])["losses"][0]
        parameters[words[1]] = " ".join(load(tmp_path / words[1] / NAMES[0]).tensors)
    assert losses["dense"] == losses["sinusoidal"], "the defaults"
    assert len(losses) == 7 and len(set(losses.values())) == 6
    for part, name in ((".mechanism.score", "additive"), (".positions.", "learned"), (".rnn.", "bahdanau")):
        assert [name for name, text in parameters.items() if part in text] == [name]


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    words = [*TINY, *SMALL, "--epochs", "3"]
    command.main([str(tmp_path / "never"), *words])
    calls = count()

    def stopping(smoothing):
        def loss(model, batch):
            if next(calls) == 7:
                raise KeyboardInterrupt
            return target_loss(model, batch)

        return loss

    with monkeypatch.context() as patch:
        patch.setattr(command, "smoothed_loss", stopping)
        with pytest.raises(KeyboardInterrupt):
            command.main([str(tmp_path / "stopped"), *words])
    assert len(load(tmp_path / "stopped" / NAMES[0]).tensors["losses"]) == 6
    assert set(result(tmp_path / "stopped")) == {"arguments"}
    command.main([str(tmp_path / "stopped"), *words, "--beam-size", "2"])  # of the test alone: may change
    never, stopped = result(tmp_path / "never"), result(tmp_path / "stopped")
    assert stopped["losses"] == never["losses"]
    assert [record["loss"] for record in stopped["validation"]] == [record["loss"] for record in never["validation"]]


def test_another_run_is_refused_and_left_alone(tmp_path, capsys):
    command.main([str(tmp_path), *TINY, *SMALL])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    capsys.readouterr()
    message = refused(capsys, tmp_path, *TINY, *SMALL, "--num-heads", "2", "--label-smoothing", "0.1")
    assert message.endswith("holds another run; num_heads: expected 4, got 2; label_smoothing: expected 0.0, got 0.1")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / NAMES[0]).write_bytes(b"damaged")
    assert refused(capsys, tmp_path, *TINY, *SMALL).startswith("checkpoint: expected a whole checkpoint")
    (tmp_path / "result.json").write_text("[1]")
    assert refused(capsys, tmp_path, *TINY, *SMALL).startswith("OUT: expected a result.json of this command or none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "argument --epochs: expected an integer of at least 1, got '0'"),
        (["--pairs", "many"], "argument --pairs: expected an integer of at least 1, got 'many'"),
        (["--seed", "-1"], "argument --seed: expected an integer of at least 0, got '-1'"),
        (["--dropout", "1"], "argument --dropout: expected a share in [0, 1), got '1'"),
        (["--label-smoothing", "nan"], "argument --label-smoothing: expected a share in [0, 1), got 'nan'"),
        (["--learning-rate", "inf"], "argument --learning-rate: expected a finite number above 0, got 'inf'"),
        (["--learning-rate", "1", "--warmup-steps", "9"], "argument --warmup-steps: not allowed with argument --lear"),
        (["--scale", "2"], "argument --scale: only with --warmup-steps"),
        (["--mechanism", "magic"], "argument --mechanism: invalid choice: 'magic'"),
        (["--precision", "float64"], "argument --precision: invalid choice: 'float64'"),
        (["--model", "bahdanau", "--norm-first"], "argument --norm-first: only for --model transformer"),
        (["--model", "bahdanau", "--num-heads", "4"], "argument --num-heads: only for --model transformer"),
        (["--num-heads", "5"], "num_heads: expected a number that divides model_dim 64, got 5"),
        (["--num-kv-heads", "3"], "num_kv_heads: expected a number that divides num_heads 4, got 3"),
        (["--positions", "rotary", "--model-dim", "12"], "positions: rotary does not fit; head_dim: expected an even"),
        (["--epoch", "2"], "unrecognized arguments: --epoch 2"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(tmp_path, capsys, words, message):
    assert refused(capsys, tmp_path / "out", *TINY, *words).startswith(message)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/out"):
        message = refused(capsys, tmp_path / out, *TINY)
        assert message.startswith(f"OUT: expected a folder to write in, got {tmp_path / out}: ")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "mine")]


def test_real_sentences(tmp_path, monkeypatch, capsys):
    numbers = "one two three four five six seven eight nine ten".split()
    with zipfile.ZipFile(tmp_path / "fra-eng.zip", "w") as archive:
        archive.writestr("fra.txt", "".join(f"Go {n}.\tVa {n}.\n" for n in numbers))
    monkeypatch.setenv("ATTN_CORE_DATA", str(tmp_path))
    words = [*SMALL, "--corpus", "tatoeba", "--held-out", "2", "--epochs", "1"]
    message = refused(capsys, tmp_path / "out", *words, "--pairs", "7")
    assert message.startswith("train: expected at most 6") and not (tmp_path / "out").exists()
    command.main([str(tmp_path / "out"), *words, "--pairs", "6"])
    tokens = json.loads((tmp_path / "out" / "vocabularies.json").read_text())["target"]
    assert tokens[:6] == [*Vocab.SPECIALS, ".", "va"] and len(tokens) == 12


def test_help_says_every_option_and_its_default(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    for name, value in vars(command.parser().parse_args(["OUT"])).items():
        if name != "out":
            after = text[text.rindex(f"\n  --{name.replace('_', '-')} ") :].split("\n  --")[1].strip().split("\n\n")[0]
            default = command.TRANSFORMER.get(name, value)
            if default not in (None, False):
                assert after.endswith(str(default)), after
