"""The painter in a page against PyTorch: its predictions, maps, factors, kept weights, and what it shows of them."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from attn_book.data import Vocab
from attn_book.painter import Painter, encode_captions, paint, to_images
from attn_book.widgets import TextToImage
from attn_book.widgets.base import Joined
from attn_book.widgets.exported import export_painter, load_painter
from attn_core.capture import capture_attention
from tests.browser.page import pixels, press, slide, text, texts

pytestmark = pytest.mark.browser

CAPTION, EDITED = "a red circle left of a blue square", "a blue circle left of a red square"
FACTORS = [1, 2, 0, 0.5, 4, 1, 1, 1, 3]
COARSE = (12, 2, 3, 8)  # hidden size, heads, blocks, side of a patch
SHAPE = (1, 16, 192)


@cache
def known(dim, num_heads, num_layers, patch_size):
    """A model never trained, as exported, and its weights in PyTorch."""
    vocab = Vocab([CAPTION.split()])
    torch.manual_seed(0)
    model = Painter(len(vocab), dim=dim, num_heads=num_heads, num_layers=num_layers, patch_size=patch_size)
    with torch.no_grad():  # as large as training makes them, so that nothing is nearly even, and no bias is zero
        for weight in model.parameters():
            spread = torch.randn_like(weight)
            weight.copy_(1.2 * weight.shape[-1] ** -0.5 * spread if weight.dim() > 1 else weight + 0.3 * spread)
    exported = export_painter(model, vocab)
    return exported, *load_painter(exported)


@pytest.fixture
def opened(show):
    """Opens a page in which `model` is open, and gives a function that calls one of the page's."""
    with show(f"<script>{Joined('page.js', 'text_to_image_numbers.js', 'text_to_image_model.js')}</script>") as page:

        def go(size=COARSE):
            page.evaluate("(state) => { globalThis.model = openPainter(state); }", known(*size)[0])
            plain = "(_, value) => (value instanceof Float32Array ? [...value] : value)"
            call = "(given) => JSON.parse(JSON.stringify(({0})(given), {1}))"
            return lambda body, **given: page.evaluate(call.format(body, plain), given)

        yield go


def read(caption, size=COARSE):
    """The caption as PyTorch's model takes it, and the ids that the page takes."""
    ids, lengths = encode_captions([caption.split()], known(*size)[2])
    return ids, lengths, ids[0, 1:].tolist()


def noise_of(seed):
    """What text_to_image_model.js says that its noise is."""
    state, uniform = seed, []
    for _ in range(2 * math.prod(SHAPE)):
        state = (state + 0x6D2B79F5) % 2**32
        bits = (state ^ state >> 15) * (state | 1) % 2**32
        bits ^= (bits + (bits ^ bits >> 7) * (bits | 61)) % 2**32
        uniform.append((bits ^ bits >> 14) / 2**32)
    one, other = np.array(uniform).reshape(-1, 2).T
    return torch.tensor(np.sqrt(-2 * np.log1p(-one)) * np.cos(2 * math.pi * other)).float().view(SHAPE)


def close(found, wanted, tolerance=5e-3):
    np.testing.assert_allclose(found, wanted.flatten().tolist(), atol=tolerance)


PREDICT = """({ ids, noise, time, factors }) => {
  const parts = model.predict(Float32Array.from(noise), model.momentOf(time), model.read(ids), { factors });
  let found;
  do found = parts.next(); while (!found.done);
  found = found.value;
  const views = [-1, ...Array(model.layers).keys()];
  return { ...found, maps: views.map((block) => mapsOf(model, found.weights, factors ?? [1, ...ids].fill(1), block)) };
}"""
PAINT = """({ ids, seed, kept = [], ...options }) => {
  const noise = noiseOf(seed, model.patches * model.pixels);
  const keep = (step) => kept[step] && Float32Array.from(kept[step]);
  return [...painting(model, { ids, noise, kept: keep, ...options })].filter(Boolean);
}"""


@pytest.mark.parametrize("size", [COARSE, (96, 4, 4, 4)])
@pytest.mark.parametrize("factors", [None, FACTORS])
@torch.no_grad()
def test_it_predicts_and_looks_as_in_pytorch(opened, size, factors):
    run, model = opened(size), known(*size)[1]
    ids, lengths, plain = read(CAPTION, size)
    noise = torch.randn(1, len(model.positions), model.inward.in_features, generator=torch.Generator().manual_seed(3))
    bias = None if factors is None else torch.tensor([factors]).log()
    for time in (0.0, 0.35, 0.95):
        with capture_attention(model) as maps:
            wanted = model(noise, torch.tensor([time]), ids, lengths, bias=bias)
        looks = torch.stack([maps[f"blocks.{k}.cross_attention"][0][0].mean(0).T for k in range(len(model.blocks))])
        found = run(PREDICT, ids=plain, noise=noise.flatten().tolist(), time=time, factors=factors)
        close(found["found"], wanted, 1e-3)
        close(np.ravel(found["maps"]), torch.cat([looks.mean(0, keepdim=True), looks]), 1e-4)


@pytest.mark.parametrize(
    ("caption", "guidance", "factors"), [(CAPTION, 1, None), ("a red", 4, None), (CAPTION, 2.5, FACTORS)]
)
def test_a_whole_painting_is_pytorchs(opened, caption, guidance, factors):
    ids, lengths, plain = read(caption)
    bias = None if factors is None else torch.tensor([factors]).log()
    seen, options = [], {"noise": noise_of(7), "guidance": guidance, "bias": bias}
    wanted = paint(known(*COARSE)[1], ids, lengths, **options, watch=lambda _, found: seen.append(found))
    steps = opened()(PAINT, ids=plain, seed=7, guidance=guidance, **({"factors": factors} if factors else {}))
    close(steps[0]["noisy"], noise_of(7), 1e-5)
    for step, found in zip(steps, seen, strict=True):
        close(step["found"], found)
    close(steps[-1]["next"], wanted)


def test_weights_that_are_kept_take_the_place_of_the_captions_own(opened, monkeypatch):
    run, model = opened(), known(*COARSE)[1]
    first, second = read(CAPTION), read(EDITED)
    sizes = {"seed": 2, "guidance": 1, "steps": 4}
    steps = run(PAINT, ids=first[2], **sizes)
    kept = [step["weights"] for step in steps][:3]
    assert run(PAINT, ids=first[2], **sizes, kept=kept) == steps, "its own weights change nothing"
    weights, now = [torch.tensor(one).view(3, 2, 16, 9) for one in kept], [0]
    for k, block in enumerate(model.blocks):
        mechanism = block.cross_attention.mechanism

        def look(queries, keys, values, *, k=k, usual=mechanism.forward, **options):
            own = usual(queries, keys, values, **options)
            return own if now[0] == 3 else torch.cat([weights[now[0]][k] @ values[:1], own[1:]])

        monkeypatch.setattr(mechanism, "forward", look)
    options = {"noise": noise_of(2), "guidance": 1, "steps": 4}
    wanted = paint(model, *second[:2], **options, watch=lambda step, _: now.__setitem__(0, step + 1))
    close(run(PAINT, ids=second[2], **sizes, kept=kept)[-1]["next"], wanted)
    assert not np.allclose(run(PAINT, ids=second[2], **sizes)[-1]["next"], wanted.flatten(), atol=0.05)


@pytest.mark.parametrize(
    "call",
    [
        "model.read(ids)",
        "model.momentOf(time)",
        "model.predict(noisy, model.momentOf(0), model.read([4])).next()",
        "model.predict(noiseOf(1, 3072), model.momentOf(0), model.read([4]), { factors }).next()",
        "model.predict(noiseOf(1, 3072), model.momentOf(0), model.read([4]), { kept }).next()",
        "painting(model, { ids: [4], noise: noiseOf(1, 3072), steps }).next()",
        "painting(model, { ids: [4], noise: noiseOf(1, 3072), guidance }).next()",
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(opened, call):
    wrong = {"ids": [1, 99], "time": 1.5, "noisy": [1], "factors": [1], "kept": [1], "steps": 0, "guidance": -1}
    (name,) = (name for name in wrong if name in call.replace("{ ids: [4]", ""))
    body = f"({{ {name} }}) => {{ try {{ {call}; return ''; }} catch (error) {{ return error.message; }} }}"
    assert opened()(body, **{name: wrong[name]}).startswith(f"{name}: expected ")


@pytest.fixture
def card(show):
    with show(TextToImage(known(*COARSE)[0], CAPTION).static_html(), width=760) as page:
        yield page


def painted(page):
    page.locator(".attn-told:not(:empty)").wait_for()
    return text(page, ".attn-told")


def test_the_page_shows_what_is_painted_and_each_step_before(card):
    def shows(name, patches):
        picture = 255 * to_images(patches, 8)[0].permute(1, 2, 0).numpy()
        np.testing.assert_allclose(pixels(card, f".attn-{name} canvas"), picture, atol=2.5)

    slide(card, "seed", 3)
    told, states = painted(card), []
    assert told.startswith(f"Painted “{CAPTION}” in 20 steps and ") and told.endswith("noise 3 and guidance 2.")
    model, (ids, lengths, _) = known(*COARSE)[1], read(CAPTION)
    wanted = paint(model, ids, lengths, noise=noise_of(3), watch=lambda _, found: states.append(found))
    for step, large, beside in ((20, wanted, wanted), (0, noise_of(3), states[0])):
        slide(card, "step", step)
        shows("large", large)
        shows("beside", beside)


def test_words_are_weighed_and_the_places_of_another_caption_are_kept(card):
    painted(card)  # as soon as it is seen
    card.locator("select").nth(1).select_option("0")
    painted(card)
    zeros = [value == "0.00" for value in texts(card, ".attn-look .attn-value")]
    assert zeros == [False, True, *[False] * 6]
    card.locator("input[name=keep]").check()
    told = []
    for caption in (EDITED, "a red circle"):
        card.locator("input[name=sentence]").fill(caption)
        press(card, "Paint")
        told.append(painted(card).split(". ")[-1])
    assert told[0] == f"It kept the places of “{CAPTION}” for its first 12 steps."
    assert told[1].startswith(f"It could not keep the places of “{EDITED}”")


def test_paper_shows_a_picture(card):
    card.emulate_media(media="print")
    assert "20 steps" in painted(card) and texts(card, ".attn-large figcaption") == ["After step 20 of 20"]
