"""What holds for every public mechanism, on calls that Hypothesis draws."""

import importlib
import inspect
import math
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import attn_core
from attn_core import mechanisms
from attn_core.contract import Mechanism
from tests import reference
from tests.properties.draws import HALVES, examples
from tests.properties.mechanisms import MECHANISMS, exact, run

each = pytest.mark.parametrize("name", MECHANISMS)
CONTRACT = {"mask", "bias", "causal", "scale"}


def public_mechanisms():
    """The subclasses of ``Mechanism``, and the functions called as the contract says; and the file of each."""
    found = {}
    for module in pkgutil.iter_modules(mechanisms.__path__, f"{mechanisms.__name__}."):
        if "_triton" in module.name:
            continue  # test_flash_triton.py: triton may be absent, and its interpreter wants a process of its own
        for name, one in vars(importlib.import_module(module.name)).items():
            if getattr(one, "__module__", "") != module.name or name.startswith("_"):
                continue
            if isinstance(one, type):
                called = issubclass(one, Mechanism)
            else:
                called = callable(one) and set(inspect.signature(one).parameters) >= CONTRACT
            if called:
                found[name] = module.name.rpartition(".")[2]
    return found


def test_the_table_has_every_mechanism():
    public, listed = public_mechanisms(), {name.partition(",")[0] for name in MECHANISMS}
    missing = public.keys() - listed
    assert not missing, f"{missing}: expected an entry in MECHANISMS (tests/properties/mechanisms.py)"
    assert listed == public.keys(), f"{listed - public.keys()}: in MECHANISMS, but not in attn_core/mechanisms"
    unnamed = listed - set(attn_core.__all__)
    assert not unnamed, f"{unnamed}: expected in __all__ of attn_core/__init__.py"


def test_make_check_finds_the_rows_of_a_class_by_the_name_of_its_file():
    for name, file in public_mechanisms().items():
        assert name[0].islower() or file.replace("_", "") in name.lower(), f"{name}: expected {file} in the name"


def test_the_tables_are_read_where_triton_is_not_installed():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from tests.properties import test_mechanisms, test_modules\n"
        "test_mechanisms.test_the_table_has_every_mechanism(); test_modules.test_the_table_has_every_public_module()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
def test_it_is_what_it_should_be_in_float64(name, dtype):
    mechanism = MECHANISMS[name]

    @examples(50 if dtype == torch.float32 else 15)
    @given(mechanism.calls(dtype=dtype))
    def check(call):
        made = mechanism.make(call)
        with torch.no_grad():
            out = run(made, call)
        assert out.dtype == dtype and not out.isnan().any()
        reference.assert_near(out, mechanism.expected(made, call), 6 * mechanism.tolerance(call))

    check()


@each
def test_gradients_are_right(name):
    """Against differences of outputs, in float64; those of float32, in whatever layout, are the same to rounding."""
    mechanism = MECHANISMS[name]

    @examples(15)
    @given(mechanism.calls(least=1, spreads=(0.1, 1.0)))
    def check(narrow):
        call = narrow.to(torch.float64)
        made = mechanism.make(call)
        own = slice(1, 3) if call.k is call.q else slice(3)  # a tensor that stands in two places counts once
        inputs = [x.clone().requires_grad_() for x in call.tensors[own]]

        def function(*tensors):
            return run(made, call.on(tensors[0], *tensors[-2:]))

        assert torch.autograd.gradcheck(function, inputs, fast_mode=True, atol=1e-5)
        out = function(*inputs)
        toward = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        wanted = torch.autograd.grad(out, inputs, toward)
        made = made.float() if isinstance(made, torch.nn.Module) else made
        inputs = [x.detach().requires_grad_() for x in narrow.tensors[own]]
        found = torch.autograd.grad(run(made, narrow.on(inputs[0], *inputs[-2:])), inputs, toward.float())
        for one, other in zip(found, wanted, strict=True):
            reference.assert_near(one, other, 50 * mechanism.tolerance(narrow))

    check()


@each
def test_an_empty_row_gives_zeros_and_finite_gradients(name):
    mechanism = MECHANISMS[name]

    @examples(25)
    @given(mechanism.calls())
    def check(call):
        inputs = [x.detach().requires_grad_() for x in call.tensors]
        asked = call.on(*inputs)
        out = run(mechanism.make(call), asked)
        empty = ~call.allowed().any(-1)
        if call.k is call.q and "mask" in call.options:  # a hidden token asks for nothing
            empty |= ~call.options["mask"].broadcast_to(call.shape[0], 1, 1, call.shape[3])[:, :, 0]
        elif call.k is call.q:
            empty[:] = False  # a token with no other sees itself
        assert (out[empty] == 0).all()
        found = torch.autograd.grad(out.square().sum() + 0 * sum(x.sum() for x in inputs), inputs)
        assert all(torch.isfinite(x).all() for x in found)
        if call.k is not call.q:
            assert (found[0][empty] == 0).all()

    check()


@each
def test_inputs_are_never_changed(name):
    mechanism = MECHANISMS[name]

    @examples(15)
    @given(mechanism.calls())
    def check(call):
        given_to_it = [*call.tensors, *(x for x in call.options.values() if isinstance(x, torch.Tensor))]
        # All of the memory below a view: what lies between its entries, too.
        memory = [x.untyped_storage() for x in given_to_it]
        before = [bytes(one) for one in memory]
        asked = call.on(*(x.detach().requires_grad_() for x in call.tensors))
        run(mechanism.make(call), asked).sum().backward()
        assert [bytes(one) for one in memory] == before

    check()


@pytest.mark.parametrize("name", [n for n, m in MECHANISMS.items() if m.weights])
def test_the_weights_are_what_the_table_says_and_give_the_output(name):
    mechanism = MECHANISMS[name]

    @examples(20)
    @given(mechanism.calls())
    def check(call):
        made = mechanism.make(call)
        exactly = attn_core.attention_with_weights if mechanism.expected is exact else None
        explicit = getattr(made, "with_weights", exactly)
        assert explicit, f"{name}: expected a method with_weights, or weights=None in its entry of MECHANISMS"
        with torch.no_grad():
            out, weights = explicit(*call.tensors, **call.options)
            reference.assert_near(out, run(made, call), 6 * mechanism.tolerance(call))
        allowed = call.allowed()
        assert weights.shape == call.shape and (weights[~allowed] == 0).all()
        values = reference.grouped(call.v.double(), call.shape[1])
        reference.assert_near(out, weights.double() @ values, 6 * mechanism.tolerance(call))
        if mechanism.weights == "any":
            return
        sums = weights.double().sum(-1)
        assert (weights >= 0).all() and (sums <= 1 + 1e-5).all()
        full = sums > 0.5 if mechanism.weights == "shares" else sums > 0
        if mechanism.weights == "shares":
            reference.assert_near(sums, full.double(), 1e-5)
        if not mechanism.by_position:  # otherwise rows may be empty for another reason
            assert torch.equal(full, allowed.any(-1))

    check()


@pytest.mark.parametrize("name", [n for n, m in MECHANISMS.items() if m.draws.get("causal", True)])
def test_the_future_never_moves_the_past(name):
    mechanism = MECHANISMS[name]

    @examples(25)
    @given(mechanism.calls(least=1), st.data())
    def check(call, data):
        keys, queries = call.shape[3], call.shape[2]
        call = call.on(*call.tensors, causal=True)
        new = data.draw(st.integers(0, keys - 1), label="the first key that changes")
        made = mechanism.make(call)
        later = [x.detach().clone() for x in call.tensors]
        later[1][:, :, new:] = 5 * later[1][:, :, new:].roll(1, -1) + 1
        later[2][:, :, new:] -= 100
        if call.k is call.q:
            later[0] = later[1]
        with torch.no_grad():
            one, other = run(made, call), run(made, call.on(*later))
        see_none = max(0, min(queries, new - (keys - queries)))  # the queries before the first that sees it
        reference.assert_near(one[:, :, :see_none], other[:, :, :see_none], mechanism.tolerance(call))

    check()


@each
def test_padding_never_matters(name):
    """Nor what lies in it: keys and values of any size."""
    mechanism = MECHANISMS[name]

    @examples(25)
    @given(mechanism.calls(least=1), st.data())
    def check(call, data):
        batch, _, _, keys = call.shape
        lengths = torch.tensor([data.draw(st.integers(0, keys), label="length") for _ in range(batch)])
        shown = torch.arange(keys) < lengths[:, None]
        mask = call.options.get("mask")
        padded = shown[:, None, None] if mask is None else shown[:, None, None] & mask
        call = call.on(*call.tensors, mask=padded)
        made = mechanism.make(call)
        filled = [x.detach().clone() for x in call.tensors]
        hidden = ~shown[:, None, :, None]
        filled[1] = filled[1].masked_fill(hidden, data.draw(st.sampled_from([0.0, -30.0, 1e4]), label="in the keys"))
        filled[2] = filled[2].masked_fill(hidden, data.draw(st.sampled_from([0.0, -1e6, 1e30]), label="in the values"))
        if call.k is call.q:
            filled[0] = filled[1]
        with torch.no_grad():
            one, other = run(made, call), run(made, call.on(*filled))
        reference.assert_near(one, other, mechanism.tolerance(call))

    check()


@pytest.mark.parametrize("name", [n for n, m in MECHANISMS.items() if not m.draws.get("shared")])
def test_queries_in_pieces_equal_the_whole(name):
    """Queries cut anywhere, each piece with the keys up to its last one under ``causal``."""
    mechanism = MECHANISMS[name]

    @examples(20)
    @given(mechanism.calls(least=1), st.data())
    def check(call, data):
        queries, keys = call.shape[2:]
        causal = call.options.get("causal", False)
        aligned = causal or mechanism.by_position
        assume(not aligned or keys >= queries)
        made = mechanism.make(call)
        cut = data.draw(st.integers(0, queries), label="cut")
        pieces = []
        for piece in (slice(0, cut), slice(cut, queries)):
            end = keys - queries + piece.stop if causal else keys
            if aligned and not causal and piece.stop != queries:
                # A window reaches forward, so its keys go on: only queries at the end are aligned with the last key.
                continue
            here = (slice(None), slice(None), piece, slice(end))
            options = {name: call.part(name, *here) for name in ("mask", "bias") if name in call.options}
            if mechanism.draws.get("mask") == "keys" and "mask" in options:
                options["mask"] = call.options["mask"].broadcast_to(call.shape[0], 1, 1, keys)[..., :end]
            tensors = call.q[:, :, piece], call.k[:, :, :end], call.v[:, :, :end]
            with torch.no_grad():
                pieces.append(run(made, call.on(*tensors, **options)))
        with torch.no_grad():
            whole = run(made, call)
        found = torch.cat(pieces, 2)
        reference.assert_near(found, whole[:, :, queries - found.shape[2] :], 6 * mechanism.tolerance(call))

    check()


@each
def test_rows_and_heads_do_not_meet(name):
    """Each row of the batch alone, and each key head with its queries alone, give what they give together."""
    mechanism = MECHANISMS[name]

    @examples(12)
    @given(mechanism.calls())
    def check(call):
        made = mechanism.make(call)
        batch, groups = call.shape[0], call.k.shape[1]
        group = call.shape[1] // groups
        with torch.no_grad():
            whole = run(made, call)
        for b in range(batch):
            for g in range(groups):
                if not mechanism.heads_apart and groups > 1:
                    continue
                row, heads = slice(b, b + 1), slice(g * group, (g + 1) * group)
                options = {x: call.part(x, row, heads) for x in ("mask", "bias") if x in call.options}
                if mechanism.draws.get("mask") == "keys" and "mask" in options:
                    options["mask"] = call.options["mask"].broadcast_to(batch, 1, 1, call.shape[3])[row]
                tensors = call.q[row, heads], call.k[row, slice(g, g + 1)], call.v[row, slice(g, g + 1)]
                if call.k is call.q:
                    tensors = call.q[row, heads], call.q[row, heads], call.v[row, heads]
                with torch.no_grad():
                    alone = run(made, call.on(*tensors, **options))
                reference.assert_near(alone, whole[row, heads], 6 * mechanism.tolerance(call))

    check()


@each
def test_what_is_not_finite_stays_in_its_row(name):
    """NaN or an infinity in one row of the batch, wherever, leaves the other rows as they are."""
    mechanism = MECHANISMS[name]

    @examples(20)
    @given(mechanism.calls(least=1), st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
    def check(call, value, data):
        row = data.draw(st.integers(0, call.shape[0] - 1), label="row")
        where = data.draw(st.sets(st.integers(0, 2), min_size=1), label="of q, k, v")
        spoilt = [x.detach().clone() for x in call.tensors]
        for number in where:
            spoilt[number][row, :, data.draw(st.integers(0, spoilt[number].shape[2] - 1))] = value
        if call.k is call.q:
            spoilt[0] = spoilt[1]
        made, others = mechanism.make(call), [b for b in range(call.shape[0]) if b != row]
        with torch.no_grad():
            one, other = run(made, call), run(made, call.on(*spoilt))
        reference.assert_near(other[others], one[others], mechanism.tolerance(call))

    check()


@each
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad], ids=["inference", "no grad"])
def test_it_works_where_no_gradient_is_kept(name, mode):
    mechanism = MECHANISMS[name]

    @examples(6)
    @given(mechanism.calls())
    def check(call):
        made = mechanism.make(call)
        with mode():
            out = run(made, call.on(*(x.detach().requires_grad_() for x in call.tensors)))
        assert not out.requires_grad
        reference.assert_near(out, run(made, call), mechanism.tolerance(call))

    check()


@each
def test_without_numbers_it_says_the_shape_of_the_output(name):
    """On the meta device, where shapes and operations are counted: nothing that it does depends on a number."""
    mechanism = MECHANISMS[name]

    @examples(6)
    @given(mechanism.calls())
    def check(call):
        made, expected = mechanism.make(call), run(mechanism.make(call), call)
        moved = {id(x): x.to("meta") for x in call.tensors}  # what is one tensor stays one
        options = {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in call.options.items()}
        made = made.to("meta") if isinstance(made, torch.nn.Module) else made
        out = made(*(moved[id(x)] for x in call.tensors), **options)
        assert (out.shape, out.dtype) == (expected.shape, expected.dtype)

    check()


@each
def test_under_autocast_it_keeps_the_dtype_of_q(name):
    mechanism = MECHANISMS[name]

    @examples(15)
    @given(mechanism.calls(spreads=(0.1, 1.0)))
    def check(call):
        made = mechanism.make(call)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            out = run(made, call)
        assert out.dtype == call.q.dtype
        with torch.no_grad():
            reference.assert_near(out, run(made, call), 6 * 4e-2)

    check()
