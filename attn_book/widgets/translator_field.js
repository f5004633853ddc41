// The field for a sentence, which offers the model's words as they are typed (the combobox of ARIA's practices).

const OFFERED = 6;
let fields = 0; // an option needs an id that no other on the page has

// `words` are those to offer, likeliest first; `changed` hears of each change, `send` of Enter.
function makeField(words, listen, changed, send) {
  const id = `attn-offer-${(fields += 1)}-${Math.random().toString(36).slice(2)}`;
  const list = make("div", { class: "attn-offers", id, role: "listbox", "aria-label": TEXT.suggestions });
  const combobox = { role: "combobox", "aria-autocomplete": "list", "aria-controls": id, "aria-expanded": false };
  const quiet = { autocomplete: "off", autocapitalize: "none", spellcheck: false, maxlength: 300 };
  const input = make("input", { type: "text", name: "sentence", ...combobox, ...quiet });
  const box = make("div", { class: "attn-field" }, input, list);
  let active = -1; // the option that Enter takes

  // The piece before the caret, and where it begins.
  function piece() {
    const before = input.value.slice(0, input.selectionStart);
    const from = before.search(/\S*$/u);
    return { from, text: before.slice(from).toLowerCase().normalize("NFC") };
  }

  const beginSo = (text) => (text ? words.filter((word) => word.toLowerCase().startsWith(text)) : []);

  function offer() {
    const { text } = piece();
    const matching = beginSo(text).slice(0, OFFERED);
    const isWhole = matching.length === 1 && matching[0] === text;
    const attributes = { class: "attn-offer", role: "option" };
    const option = (word, k) => make("div", { ...attributes, id: `${id}-${k}`, "data-word": word }, shown(word));
    list.replaceChildren(...(isWhole ? [] : matching).map(option));
    activate(-1);
  }

  function activate(k) {
    active = k;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", i === k));
    input.setAttribute("aria-expanded", list.children.length > 0);
    if (k < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", list.children[k].id);
    list.hidden = !list.children.length;
  }

  function close() {
    list.replaceChildren();
    activate(-1);
  }

  // The word in place of the piece around the caret, and a space after it.
  function take(word) {
    const { from } = piece();
    const after = input.value.slice(input.selectionStart).replace(/^\S*\s?/u, "");
    input.value = `${input.value.slice(0, from)}${word} ${after}`;
    input.setSelectionRange(from + word.length + 1, from + word.length + 1);
    close();
    changed();
  }

  listen(input, "input", () => {
    offer();
    changed();
  });
  listen(input, "blur", () => {
    close();
    changed();
  });
  listen(list, "pointerdown", (event) => event.preventDefault()); // the field keeps the focus
  listen(list, "click", ({ target }) => target.dataset.word !== undefined && take(target.dataset.word));
  listen(input, "keydown", (event) => {
    event.stopPropagation(); // a notebook has keys of its own
    const count = list.children.length;
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.isComposing || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    // One place more than there are options: that of the text as it is typed.
    if (by && !count) offer();
    else if (by) activate(((active + 1 + by + count + 1) % (count + 1)) - 1);
    else if (event.key === "Escape" && count) close();
    else if (["Enter", "Tab"].includes(event.key) && active >= 0) take(list.children[active].dataset.word);
    else if (event.key === "Enter") {
      close();
      send();
    } else return;
    event.preventDefault();
  });

  close();
  return {
    box,
    input,
    // Whether the word at the caret may yet become one that is known.
    isUnfinished: (word) =>
      box.contains(input.getRootNode().activeElement) && piece().text === word && beginSo(word).length > 0,
  };
}

