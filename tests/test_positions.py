import cmath
import math

import pytest
import torch
from torch import nn

from attn_core.positions import (
    ALiBi,
    Interpolation,
    Learned,
    NTKAware,
    Rotary,
    Sinusoidal,
    YaRN,
    following,
    sinusoidal,
)
from tests import reference


def draw(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def entry(place, column, dim, base=10_000.0):
    angle = place / base ** (2 * (column // 2) / dim)
    return math.cos(angle) if column % 2 else math.sin(angle)


@pytest.mark.parametrize("base", [10_000.0, 7.0, 1.0])
@pytest.mark.parametrize(("length", "dim"), [(9, 8), (5, 7), (3, 1), (1, 2), (0, 6)])
def test_sinusoids_are_those_of_the_formula(length, dim, base):
    table = sinusoidal(length, dim, base=base)
    wanted = [[entry(i, j, dim, base) for j in range(dim)] for i in range(length)]
    assert table.shape == (length, dim) and table.dtype == torch.float32
    torch.testing.assert_close(table, torch.tensor(wanted).view(length, dim), atol=1e-7, rtol=0)


def test_they_are_exact_far_out():
    far = Sinusoidal(6)(torch.zeros(1, 1, 6), offset=100_003)[0, 0]
    for column in range(6):
        assert abs(far[column].item() - entry(100_003, column, 6)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_they_follow_the_dtype_of_the_vectors(dtype):
    """An erratum of the usual notes: a table that is a plain attribute stays where and what it was."""
    layer, x = Sinusoidal(5).to(dtype), draw(2, 4, 5, dtype=dtype)
    found = layer(x)
    assert found.dtype == dtype and not layer.state_dict() and not list(layer.parameters())
    wanted = x.double() + torch.tensor([[entry(i, j, 5) for j in range(5)] for i in range(4)], dtype=torch.float64)
    torch.testing.assert_close(found.double(), wanted, atol={torch.float64: 1e-12}.get(dtype, 2e-2), rtol=0)
    assert sinusoidal(3, 4, dtype=dtype).dtype == dtype


def test_they_follow_the_device_of_the_vectors():
    meta = torch.device("meta")
    assert Sinusoidal(4)(torch.empty(2, 3, 4, device=meta)).device == meta


LAYERS = {"sinusoidal": lambda: Sinusoidal(6), "learned": lambda: Learned(12, 6)}


@pytest.mark.parametrize("name", LAYERS)
def test_in_two_pieces_as_in_one(name):
    layer, x = LAYERS[name](), draw(2, 9, 6)
    pieces = torch.cat([layer(x[:, :4]), layer(x[:, 4:], offset=4)], 1)
    assert torch.equal(pieces, layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_each_row_may_begin_elsewhere(name):
    layer, x = LAYERS[name](), draw(3, 4, 6)
    offsets = torch.tensor([0, 7, 3])
    rows = [layer(x[i : i + 1], offset=int(offsets[i])) for i in range(3)]
    assert torch.equal(layer(x, offset=offsets), torch.cat(rows))


PLACES = {"shared": torch.tensor([0, 5, 2]), "by row": torch.tensor([[0, 1, 2], [9, 7, 100_000]])}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_rotary_is_a_product_of_complex_numbers(places):
    x = draw(2, 3, 3, 4)
    found = Rotary(4).rotate(x, places)
    rows = places.expand(2, 3)
    for b in range(2):
        for n in range(3):
            for j in range(2):
                spin = cmath.exp(1j * int(rows[b, n]) / 10_000.0 ** (2 * j / 4))
                for h in range(3):
                    wanted = complex(x[b, h, n, 2 * j], x[b, h, n, 2 * j + 1]) * spin
                    pair = complex(found[b, h, n, 2 * j], found[b, h, n, 2 * j + 1])
                    assert abs(pair - wanted) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rotary_keeps_dtype_and_input(dtype):
    x = draw(1, 2, 5, 6, dtype=dtype)
    before, places = x.clone(), torch.arange(5)
    found = Rotary(6).rotate(x, places)
    assert found.dtype == dtype and torch.equal(x, before)
    wanted = Rotary(6).rotate(x.double(), places)
    torch.testing.assert_close(found.double(), wanted, atol=reference.tolerance(dtype), rtol=0)


def test_rotary_takes_any_layout():
    for x in (
        draw(2, 3, 5, 8)[..., 1:7],
        draw(2, 3, 5, 9)[..., 2:8],
        draw(2, 3, 6, 5).mT,
        draw(2, 3, 5, 12)[..., ::2],
    ):
        assert torch.equal(Rotary(6).rotate(x, torch.arange(5)), Rotary(6).rotate(x.clone(), torch.arange(5)))


def test_positions_follow_those_before():
    x, before = draw(2, 3, 2, 4), torch.tensor([4, 7])
    assert following(5, x).tolist() == [5, 6] and following(before, x).tolist() == [[4, 5], [7, 8]]


SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    # the eight of 8, then the first, third, fifth and seventh of 16
    12: [*(2.0**-h for h in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi_is_slope_times_distance(heads):
    queries, keys = torch.tensor([4, 5, 9]), torch.arange(6)
    found = ALiBi(heads).bias(queries, keys)
    wanted = [[[-s * abs(int(i) - int(j)) for j in keys] for i in queries] for s in SLOPES[heads]]
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("dtype", "first"), [(torch.uint8, 0), (torch.int8, -120)])
def test_alibi_measures_distances_of_small_integers(dtype, first):
    queries, keys = torch.tensor([0, 100, 120]), torch.tensor([first, 120])
    assert torch.equal(ALiBi(2).bias(queries.to(dtype), keys.to(dtype)), ALiBi(2).bias(queries, keys))


def test_alibi_takes_places_of_each_row():
    queries = torch.tensor([[0, 1], [5, 6]])
    found = ALiBi(2).bias(queries, torch.arange(7))
    assert found.shape == (2, 2, 2, 7)
    for row in range(2):
        assert torch.equal(found[row], ALiBi(2).bias(queries[row], torch.arange(7)))
    x = draw(1, 2, 3, 4)
    assert ALiBi(2).rotate(x, torch.arange(3)) is x and Rotary(4).bias(queries[0], queries[0]) is None


def test_they_print_their_sizes():
    model = nn.Sequential(Sinusoidal(4), Learned(7, 4), Rotary(4), ALiBi(3))
    for part in ("dim=4, base=10000", "max_length=7, dim=4", "rotary_dim=4, base=10000", "num_heads=3"):
        assert part in repr(model)


def test_a_part_of_a_head_is_rotated_as_a_head_of_that_size():
    x, places = draw(2, 3, 5, 8), torch.arange(5)
    found = Rotary(8, rotary_dim=4).rotate(x, places)
    assert torch.equal(found[..., :4], Rotary(4).rotate(x[..., :4], places))
    assert torch.equal(found[..., 4:], x[..., 4:])


def test_interpolation_divides_positions():
    x = draw(1, 1, 6, 8)
    stretched = Rotary(8, scaling=Interpolation(4.0)).rotate(x, 4 * torch.arange(6))
    torch.testing.assert_close(stretched, Rotary(8).rotate(x, torch.arange(6)))


def test_ntk_aware_scaling_is_a_higher_base():
    x, places, factor = draw(1, 1, 6, 8), 50 * torch.arange(6), 4.0
    higher = Rotary(8, base=10_000.0 * factor ** (8 / 6))
    torch.testing.assert_close(Rotary(8, scaling=NTKAware(factor)).rotate(x, places), higher.rotate(x, places))


def test_yarn_keeps_fast_pairs_interpolates_slow_ones_and_multiplies():
    trained, factor = 4096, 4.0
    turns = torch.tensor([100.0, 32.0, 16.5, 1.0, 0.3], dtype=torch.float64)
    frequencies = turns * 2 * math.pi / trained
    slowed = frequencies / YaRN(factor, trained)(frequencies)
    torch.testing.assert_close(slowed, torch.tensor([1.0, 1.0, 1 / 0.625, 4.0, 4.0], dtype=torch.float64))
    x = draw(1, 1, 1, 8)
    times = Rotary(8, scaling=YaRN(factor, trained)).rotate(x, torch.zeros(1, dtype=torch.int64)) / x
    torch.testing.assert_close(times, torch.full_like(x, 0.1 * math.log(4) + 1))


def test_llama_3s_frequencies():
    """Wavelengths beyond 8,192 tokens are stretched by 8, those below 2,048 are kept, as its configuration says."""
    waves = torch.tensor([100.0, 2048.0, 8192.0, 60_000.0], dtype=torch.float64)
    scaling = YaRN(8.0, 8192, fast=4.0, magnitude=1.0)
    torch.testing.assert_close(2 * math.pi / scaling(2 * math.pi / waves), waves * torch.tensor([1, 1, 8, 8]))
    assert scaling.magnitude == 1.0
