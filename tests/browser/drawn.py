"""What a widget shows once it has drawn itself, and how one is used: for all of them, wherever they are rendered."""

from __future__ import annotations

from typing import Any, NamedTuple


class Use(NamedTuple):
    """How a reader uses a widget, by selectors. A click, and then a key, change what is watched, however often."""

    drawn: str  # parts that it draws at least one of
    click: str
    focus: str  # what has the focus as the key is pressed
    key: str
    watched: str  # elements, and after an @ the attribute of theirs that tells


USES = {
    "AttentionHeatmap": Use(
        drawn=".attn-row", click=".attn-area", focus=".attn-cell", key="Enter", watched=".attn-row@aria-pressed"
    ),
    "AttentionPatternExplorer": Use(
        drawn=".attn-plot path",
        click=".attn-choice:has(:not(:checked))",
        focus=".attn-choice :checked",
        key="ArrowRight",
        watched=".attn-pairs@data-pattern",
    ),
    "KernelSmoother": Use(
        drawn="path.attn-curve",
        click="[name=query]",
        focus="input[name=query]",
        key="Home",
        watched="input@aria-valuetext",
    ),
    "MaskedWordExplorer": Use(
        drawn="[data-place]",
        click="[data-place][tabindex='-1']",
        focus="[data-place][tabindex='0']",
        key="Enter",
        watched="[data-place]@aria-pressed",
    ),
    "OnlineSoftmaxStepper": Use(
        drawn=".attn-entry",
        click="[name=next]",
        focus="input[name=step]",
        key="ArrowLeft",
        watched="input@aria-valuetext",
    ),
    "PagedCacheExplorer": Use(
        drawn="[role=option]",
        click="[role=option][aria-selected=false]",
        focus="[role=option][tabindex='0']",
        key="ArrowRight",
        watched="[role=option]@aria-selected",
    ),
    "PatchAttentionExplorer": Use(
        drawn=".attn-images canvas",
        click=".attn-images label:not(.attn-chosen)",
        focus=".attn-images :checked",
        key="ArrowRight",
        watched=".attn-images label@class",
    ),
    "PositionalEncodingExplorer": Use(
        drawn=".attn-wave", click=".attn-area", focus=".attn-cell", key="ArrowDown", watched=".attn-cell@aria-label"
    ),
    "Quiz": Use(
        drawn="fieldset input",
        click="form:not([data-answered]) input",
        focus="fieldset .attn-main",
        key="Enter",
        watched="fieldset button@class",
    ),
    "TextToImage": Use(
        drawn=".attn-look canvas",
        click=".attn-look",
        focus=".attn-look",
        key="Enter",
        watched=".attn-look@aria-pressed",
    ),
    "Translator": Use(
        drawn=".attn-square",
        click="[data-place][tabindex='-1']",
        focus="[data-place][tabindex='0']",
        key="Enter",
        watched="[data-place]@aria-expanded",
    ),
}

# What is wrong with how a widget looks. It must also look as it does once it has been made to lay itself out anew.
FAULTS = """async (card, [drawn, theme]) => {
  const found = [];
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const look = () => card.outerHTML + [...card.querySelectorAll("canvas")].map((canvas) => canvas.toDataURL()).join();
  // A busy machine draws late: a look counts once it has stayed the same for a while, and a painting once it is done.
  const settled = async () => {
    for (let last = null, same = 0, tries = 0; same < 5 && tries < 200; tries++) {
      await frames();
      const now = look();
      same = now === last && !card.querySelector(".attn-painter > .attn-told:empty") ? same + 1 : 0;
      last = now;
    }
    return look();
  };
  const before = await settled();
  document.body.classList.toggle("attn-anew");
  if ((await settled()) !== before) found.push("it looks otherwise when it is laid out anew");
  const { width, height } = card.getBoundingClientRect();
  if (width < 300 || height < 100) found.push(`it is ${width} wide and ${height} high`);
  if (card.dataset.theme !== theme) found.push(`its theme is ${card.dataset.theme}`);
  if (!card.querySelector(drawn)) found.push(`there is no ${drawn}`);
  const pen = new OffscreenCanvas(100, 100).getContext("2d", { willReadFrequently: true });
  for (const part of card.querySelectorAll("canvas, svg")) {
    if (!part.checkVisibility()) continue;
    if (part.matches("svg") && !part.childElementCount) found.push("a drawing is empty");
    if (part.matches("svg")) continue;
    pen.drawImage(part, 0, 0, 100, 100);
    const { data } = pen.getImageData(0, 0, 100, 100);
    if (new Set(new Uint32Array(data.buffer)).size < 3) found.push("a canvas is empty");
  }
  for (const element of card.querySelectorAll("svg, svg *, [style]")) {
    for (const { name, value } of element.attributes) {
      if (/NaN|undefined|Infinity/.test(value)) found.push(`${element.tagName} has ${name}="${value}"`);
    }
  }
  return found;
}"""


def faults(card: Any, name: str, theme: str) -> list[str]:
    """What is wrong with the drawing of a widget of the class `name`, in a page of this theme."""
    found: list[str] = card.evaluate(FAULTS, [USES[name].drawn, theme])
    return found


def watched(card: Any, name: str) -> list[str | None]:
    """What tells whether a widget has answered."""
    selector, attribute = USES[name].watched.split("@")
    values: list[str | None] = card.evaluate(
        "(card, [selector, attribute]) => [card, ...card.querySelectorAll('*')]"
        ".filter((element) => element.matches(selector)).map((element) => element.getAttribute(attribute))",
        [selector, attribute],
    )
    return values
