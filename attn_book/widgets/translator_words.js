// The words of a translation, which can be opened, and what else the model would write in the place of one.

// `point` hears of the word that is pointed at, −1 for none; `toggle` of one that is opened or closed; `choose` of a
// token that is to stand in its place.
function makeWords(listen, { point, toggle, choose }) {
  const line = make("div", { class: "attn-words", role: "group", "aria-label": TEXT.translation });
  const others = make("div", { class: "attn-panel attn-others", role: "group" });
  let [at, last, opened] = [0, -1, -1]; // the word that the keys are at, the last that shows, the one that is open

  // Each word has its `text` and `share`, and may be `forced` or the `end`; the first `count` show. `goTo` is the one
  // to have the focus, if any.
  function draw(words, { count, open, isStale, goTo }) {
    const isHeld = goTo >= 0 || line.contains(line.getRootNode().activeElement);
    [last, opened] = [count - 1, open];
    at = Math.max(0, Math.min(goTo >= 0 ? goTo : at, last));
    const buttons = words.map(({ text, share, forced, end }, t) => {
      const tags = forced ? [TEXT.forced] : [];
      const sure = make("span", { class: "attn-sure", "aria-hidden": true });
      const word = make("button", { type: "button", "data-place": t }, span("token", text), sure, span("tag", ...tags));
      word.className = `attn-word${forced ? " attn-forced" : ""}${end ? " attn-end" : ""}${t > last ? " attn-later" : ""}`;
      word.style.setProperty("--attn-share", share);
      word.setAttribute("aria-label", TEXT.word(text, percent(share), tags));
      word.setAttribute("aria-expanded", t === open);
      word.setAttribute("aria-disabled", isStale);
      word.tabIndex = t === at ? 0 : -1;
      return word;
    });
    // A word that stays is not drawn anew: it would lose the click or the focus that it is just getting.
    const there = [...line.children];
    if (there.length !== buttons.length || there.some((word, t) => word.textContent !== buttons[t].textContent)) {
      line.replaceChildren(...buttons);
    } else {
      there.forEach((word, t) => [...buttons[t].attributes].forEach(({ name, value }) => word.setAttribute(name, value)));
    }
    if (isHeld) line.children[at].focus({ preventScroll: true });
  }

  // The tokens that may stand in the place of the word that is open: `id`, `text`, probability `p`, whether it is `taken`.
  function offer(word, options) {
    others.hidden = !options.length;
    if (!options.length) return;
    const buttons = options.map(({ id, text, p, taken }) => {
      const option = make("button", { type: "button", class: "attn-option", "data-id": id, "aria-pressed": taken });
      option.setAttribute("aria-label", TEXT.alternative(text, percent(p)));
      const fill = span("fill");
      fill.style.width = `${100 * p}%`;
      option.append(span("token", text), span("room", fill), span("value", percent(p)));
      return option;
    });
    others.setAttribute("aria-label", TEXT.alternatives(word));
    others.replaceChildren(make("div", { class: "attn-hint" }, TEXT.alternatives(word)), ...buttons);
  }

  const placeOf = ({ target }) => Number(target.closest("[data-place]")?.dataset.place ?? -1);
  listen(line, "click", (event) => placeOf(event) >= 0 && toggle(placeOf(event)));
  for (const event of ["pointerover", "focusin"]) listen(line, event, (over) => point(placeOf(over)));
  for (const event of ["pointerleave", "focusout"]) listen(line, event, () => point(-1));
  listen(line, "keydown", (event) => {
    const moves = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: last };
    const to = Math.max(0, Math.min(moves[event.key], last));
    if (event.ctrlKey || event.altKey || event.metaKey || Number.isNaN(to)) return;
    line.children[at].tabIndex = -1;
    at = to;
    line.children[at].tabIndex = 0;
    line.children[at].focus();
    event.preventDefault();
  });
  for (const place of [line, others]) {
    listen(place, "keydown", (event) => {
      if (event.key !== "Escape" || opened < 0) return;
      event.stopPropagation();
      toggle(opened);
    });
  }
  listen(others, "click", ({ target }) => {
    const id = target.closest("[data-id]")?.dataset.id;
    if (id !== undefined) choose(opened, Number(id));
  });
  return { line, others, draw, offer };
}

