"""Ten tests that catch real attention bugs; and the shape test, which catches none of them.

Each takes ``make``, called as ``make(model_dim, num_heads)``, and raises an AssertionError that says what is wrong with
the layer. The layer is called as ``layer(queries, keys, mask=…, causal=…)``, like ``MultiHeadAttention``: the keys are
the values too, by default the queries, and a mask is True where a query may attend. Some tests set the weights of its
four projections ``query``, ``key``, ``value`` and ``out``, which are ``nn.Linear``.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import masks
from attn_core.positions import sinusoidal

Make = Callable[[int, int], nn.Module]
MODEL_DIM, HEADS = 16, 4
CLOSE = 1e-5


def shapes_are_right(make: Make) -> None:
    """As many vectors come out as queries went in, of the same size, and finite."""
    layer, x = _layer(make), _draw(3, 5, MODEL_DIM)
    for keys, options in ((None, {"causal": True}), (_draw(3, 7, MODEL_DIM), {}), (None, {"mask": _mask(5, 2, 3)})):
        out = layer(x, keys, **options)
        assert out.shape == x.shape, f"{tuple(x.shape)} went in, {tuple(out.shape)} came out"
        assert torch.isfinite(out).all(), "what came out is not finite"


def causal_sees_the_past_and_no_more(make: Make) -> None:
    """In training and in evaluation, output t depends on inputs 0 to t and on no other, by its gradient."""
    for mode in (True, False):
        layer, x = _layer(make).train(mode), _draw(2, 6, MODEL_DIM).requires_grad_()
        for t in range(6):
            output = layer(x, causal=True)[:, t].pow(2).sum() + 0 * x.sum()  # defined even if the layer drops x
            (gradient,) = torch.autograd.grad(output, x)
            depends = gradient.abs().amax((0, 2)) > 0
            where = f"output {t} in {'training' if mode else 'evaluation'} mode"
            assert not depends[t + 1 :].any(), f"{where} depends on inputs {depends.nonzero().flatten().tolist()}"
            assert depends[: t + 1].all(), f"{where} depends only on inputs {depends.nonzero().flatten().tolist()}"


def order_is_invisible(make: Make) -> None:
    """Without positions and without a causal mask, shuffled inputs give equally shuffled outputs."""
    layer, x = _layer(make), _draw(2, 7, MODEL_DIM)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    _same(layer(x[:, order]), layer(x)[:, order], "the outputs of shuffled inputs differ from the shuffled outputs")


def padding_is_invisible(make: Make) -> None:
    """The content of the padding changes nothing at real tokens."""
    layer, x, mask = _layer(make), _draw(3, 6, MODEL_DIM), _mask(6, 3, 4)
    other = torch.where(mask[:, 0, 0, :, None], x, 10 * _draw(3, 6, MODEL_DIM, seed=1))
    true = mask[:, 0, 0]
    _same(layer(other, mask=mask)[true], layer(x, mask=mask)[true], "other padding gives other outputs")


def sentences_stay_apart(make: Make) -> None:
    """A sentence's outputs do not depend on the other sentences of the batch, nor on their lengths."""
    layer, x = _layer(make), _draw(3, 6, MODEL_DIM)
    other = torch.cat([x[:1], _draw(2, 6, MODEL_DIM, seed=1)])
    out, alone = layer(other, mask=_mask(6, 1, 5))[0], layer(x, mask=_mask(6, 6, 6))[0]
    _same(out, alone, "other neighbours in the batch give a sentence other outputs")


def a_match_is_fetched(make: Make) -> None:
    """With sharp scores each query fetches the value of its matching key, even if two queries match the same."""
    layer = _identity(make)
    keys = 8 * torch.eye(MODEL_DIM // HEADS).repeat(1, HEADS)[None]  # each head sees the whole one-hot code
    matches = keys[:, [2, 0, 0, 3, 1, 2]]
    _same(layer(matches, keys), matches, "queries do not get the values of the keys that they match", close=0.05)


def weights_add_up(make: Make) -> None:
    """Five copies of a token, two of them masked, give a query the same output as a single copy."""
    layer, x, token = _layer(make), _draw(2, 3, MODEL_DIM), _draw(2, 1, MODEL_DIM, seed=1)
    copies = layer(x, token.repeat(1, 5, 1), mask=torch.tensor([True, True, False, True, False]))
    _same(copies, layer(x, token), "copies of one token give another output than the token: the weights are not a mean")


def scores_keep_their_scale(make: Make) -> None:
    """Even in a large head, a query averages many random keys and does not choose a single one.

    With scores of variance 1 over S keys the squared weights add up to about e/S, here .01; a single one has 1.
    """
    size, keys = 256, 256
    layer = _identity(make, size, 1)
    mixed = torch.linalg.qr(_draw(size, size, seed=2)).Q  # so that values have nothing to do with their keys
    layer.value.weight.data.copy_(mixed)
    out = layer(_draw(1, 32, size), _draw(1, keys, size, seed=1))
    assert out.var() < 0.5, f"{keys} random values of variance 1 were averaged to variance {out.var():.2f}, not near 0"


def heads_have_their_size(make: Make) -> None:
    """Entries of one head are weighted alike, and entries of two heads are not."""
    layer, size = _identity(make), MODEL_DIM // HEADS
    queries, keys = 2 * _draw(1, 4, MODEL_DIM), 2 * _draw(1, 6, MODEL_DIM, seed=1)
    keys[..., 1] = keys[..., 0]
    keys[..., size] = keys[..., 0]
    out = layer(queries, keys)
    _same(out[..., 1], out[..., 0], "two entries of one head are weighted differently: its size is not C / H")
    apart = (out[..., size] - out[..., 0]).abs().max()
    assert apart > 1e-3, "two entries of different heads are weighted alike: there are fewer heads than requested"


def noise_stays_noise(make: Make) -> None:
    """A causal language model cannot predict random tokens: its loss begins at ln V and never falls below it."""
    size, tokens = 8, torch.randint(8, (120, 32, 9), generator=torch.Generator().manual_seed(2))
    model = _language_model(make, size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = [_step(model, batch, optimizer) for batch in tokens]
    last, floor = sum(losses[-40:]) / 40, math.log(size)
    assert abs(losses[0] - floor) < 0.1, f"the first loss is {losses[0]:.2f}, not ln {size} = {floor:.2f}"
    # Over 10,240 tokens the mean of a guess that errs as chance will is certain to about .01.
    assert last > floor - 0.03, f"random tokens were predicted with a loss of {last:.2f}, below ln {size} = {floor:.2f}"


def one_batch_is_learned(make: Make) -> None:
    """A small model can learn one batch by heart: it repeats the first token after seven fillers."""
    tokens = torch.zeros(8, 9, dtype=torch.long)
    tokens[:, 0] = tokens[:, -1] = torch.arange(8)
    model = _language_model(make, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = [_step(model, tokens, optimizer, last=1) for _ in range(80)]
    assert losses[-1] < 0.1, f"after {len(losses)} steps on one batch the loss is {losses[-1]:.2f}, not near 0"


TESTS = (
    causal_sees_the_past_and_no_more,
    order_is_invisible,
    padding_is_invisible,
    sentences_stay_apart,
    a_match_is_fetched,
    weights_add_up,
    scores_keep_their_scale,
    heads_have_their_size,
    noise_stays_noise,
    one_batch_is_learned,
)


def symptoms(make: Make) -> dict[str, str | None]:
    """The result of every test on a layer, by the test's name: None if it passes, otherwise what is wrong."""
    findings: dict[str, str | None] = {}
    for test in (shapes_are_right, *TESTS):
        try:
            test(make)
            findings[test.__name__] = None
        except Exception as error:  # any other error of the layer is a failure too
            findings[test.__name__] = (
                str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            )
    return findings


class _LanguageModel(nn.Module):
    def __init__(self, layer: nn.Module, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, MODEL_DIM)
        self.layer = layer
        logits = nn.Linear(64, size)
        # With small first logits all tokens are almost equally likely, and the first loss is ln V.
        nn.init.normal_(logits.weight, std=0.01)
        nn.init.zeros_(logits.bias)
        self.feed_forward = nn.Sequential(nn.Linear(MODEL_DIM, 64), nn.ReLU(), logits)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + sinusoidal(tokens.shape[1], MODEL_DIM)
        return self.feed_forward(x + self.layer(x, causal=True))


def _language_model(make: Make, size: int) -> _LanguageModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _LanguageModel(make(MODEL_DIM, HEADS), size)


def _step(model: nn.Module, tokens: Tensor, optimizer: torch.optim.Optimizer, *, last: int = 0) -> float:
    """One training step on the loss of the ``last`` next tokens, or of all; returns the loss before the step."""
    loss = functional.cross_entropy(model(tokens[:, :-1])[:, -last:].flatten(0, 1), tokens[:, 1:][:, -last:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def _layer(make: Make, model_dim: int = MODEL_DIM, heads: int = HEADS) -> Any:
    """A layer with random weights, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make(model_dim, heads)


@torch.no_grad()
def _identity(make: Make, model_dim: int = MODEL_DIM, heads: int = HEADS) -> Any:
    """A layer whose projections are the identity."""
    layer = _layer(make, model_dim, heads)
    for name in ("query", "key", "value", "out"):
        projection = getattr(layer, name)
        nn.init.eye_(projection.weight)
        if projection.bias is not None:
            nn.init.zeros_(projection.bias)
    return layer


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _mask(size: int, *lengths: int) -> Tensor:
    """The padding mask of sentences with these lengths, after a first one of full length."""
    return masks.padding(torch.tensor([size, *lengths]), size)


def _same(result: Tensor, expected: Tensor, message: str, *, close: float = CLOSE) -> None:
    off = (result - expected).abs().max().item()
    assert off <= close, f"{message} (by up to {off:.2g})"
