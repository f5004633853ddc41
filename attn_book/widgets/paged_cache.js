// A paged cache of keys and values at work: the pool of blocks, the requests with their block tables, and what memory
// reserved in one piece for each would hold instead. All of it follows from a list of events.

const TEXT = {
  title: say("Paged key–value cache"),
  back: say("Back"), next: say("Next"), restart: say("Start over"),
  steps: (step, all) => say("step {step} of {all}", { step, all }),
  pool: (used, all) => say("The pool: {used} of {all} blocks in use", { used, all }),
  blocks: say("Blocks of the pool"),
  token: say("token"), rest: say("reserved, empty"), free: say("free"), shared: say("tables share the block"),
  fresh: say("just written"),
  requests: say("Requests, and their block tables: logical → physical block"),
  nobody: say("There are no requests."),
  growOf: (name) => say("+1 token for {name}", { name }), forkOf: (name) => say("fork {name}", { name }),
  endOf: (name) => say("end {name}", { name }),
  chunkOf: (name, n) => say("{n} tokens more for {name}", { name, n }),
  preemptOf: (name) => say("preempt {name}", { name }), resumeOf: (name) => say("resume {name}", { name }),
  grow: "+1", more: (n) => `+${n}`, fork: say("fork"), preempt: say("preempt"), resume: say("resume"), end: say("end"), start: say("New request"), prompt: say("prompt length"),
  decode: say("+1 token for each"),
  tokens: (n) => (n === 1 ? say("1 token") : say("{n} tokens", { n })),
  slots: (n) => (n === 1 ? say("1 slot") : say("{n} slots", { n })),
  memory: (slots) => say("The same {slots} slots: paged, or reserved contiguously for each request", { slots }),
  paged: say("paged"), whole: say("contiguous"), size: say("block size"), reserve: say("reserved per request"),
  use: (used, reserved) => {
    const share = Math.round((100 * used) / reserved);
    const values = { used, reserved, share };
    return reserved ? say("{used} of {reserved} reserved slots hold a token: {share}\u00a0%.", values) : "";
  },
  saved: (n) => {
    if (!n) return "";
    return n === 1 ? say("Sharing saves 1 slot.") : say("Sharing saves {n} slots.", { n });
  },
  room: (n, room) =>
    n === 1
      ? say("With 1 slot each, {room} fit at a time.", { room })
      : say("With {n} slots each, {room} fit at a time.", { n, room }),
  noRoom: (n, room, names) =>
    n === 1
      ? say("With 1 slot each, {room} fit at a time: no room for {names}.", { room, names })
      : say("With {n} slots each, {room} fit at a time: no room for {names}.", { n, room, names }),
  hint: say("Point at a block or a request, or move through the blocks with the arrow keys."),
  freeBlock: (block) => say("Block {block} is free.", { block }),
  takenBlock: (block, first, last, names, filled, size) => {
    const values = { block, first, last, names, filled, size };
    if (size === 1) return say("Block {block} holds token {first} of {names}: {filled} of 1 slot.", values);
    return first === last
      ? say("Block {block} holds token {first} of {names}: {filled} of {size} slots.", values)
      : say("Block {block} holds tokens {first} to {last} of {names}: {filled} of {size} slots.", values);
  },
  request: (name, last, size, logical, block, slot) =>
    say(
      "{name}’s last token is number {last}: logical block ⌊{last} / {size}⌋ = {logical} is block {block}, and {last} mod {size} = {slot} its slot.",
      { name, last, size, logical, block, slot },
    ),
  // What has just happened. Of blocks there is a list.
  empty: say("All blocks are free, and there are no requests."),
  absent: (name) => say("Nothing happens: there is no request {name}.", { name }),
  started: (name, tokens, blocks) => {
    const values = { name, tokens, blocks: joined(blocks) };
    if (tokens === 1) return say("{name} arrives with 1 token and gets block {blocks}.", values);
    return blocks.length === 1
      ? say("{name} arrives with {tokens} tokens and gets block {blocks}.", values)
      : say("{name} arrives with {tokens} tokens and gets blocks {blocks}.", values);
  },
  refused: (name, needed, free) => {
    const said = say("No room for {name}: blocks needed: {needed}, free: {free}.", { name, needed, free });
    return inOne(said, TEXT.waiting);
  },
  waiting: say("It waits until another request ends; nothing is lost."),
  stayed: (names, blocks) => {
    const values = { names: joined(names), blocks: joined(blocks) };
    return blocks.length === 1
      ? say("{names}: one token more, in block {blocks}.", values)
      : say("{names}: one token more, in blocks {blocks}.", values);
  },
  took: (name, block) =>
    say("{name}: one token more. The last block was full, so block {block} is taken from the free ones.", {
      name, block,
    }),
  copied: (name, source, count, target) =>
    say("{name}: one token more. Block {source} is shared by {count}, so it is first copied to block {target}.", {
      name, source, count, target,
    }),
  chunk: (name, n, blocks) => {
    const values = { name, n, blocks: joined(blocks) };
    if (!blocks.length) return say("{name}: {n} tokens more, in the block that it has.", values);
    return blocks.length === 1
      ? say("{name}: {n} tokens more. Block {blocks} is taken from the free ones.", values)
      : say("{name}: {n} tokens more. Blocks {blocks} are taken from the free ones.", values);
  },
  preempted: (name, tokens, freed) => {
    const values = { name, tokens, blocks: joined(freed) };
    const free = () => say("{name} is preempted. Free again: {blocks}.", values);
    const said = freed.length ? free() : say("{name} is preempted.", values);
    const kept = say("Its keys and values are gone, and its text of {tokens} tokens is kept.", values);
    return inOne(said, kept);
  },
  resumed: (name, tokens, blocks) =>
    say("{name} is resumed: the model reads its {tokens} tokens again, and they go to {blocks}.", {
      name, tokens, blocks: joined(blocks),
    }),
  outside: (n) => (n === 1 ? say("1 token, preempted") : say("{n} tokens, preempted", { n })),
  waits: (names) =>
    say("{names}: no block is free. The next token waits until another request ends; nothing is lost.", {
      names: joined(names),
    }),
  forked: (parent, name, blocks) => {
    const values = { parent, name, blocks: joined(blocks) };
    return blocks.length === 1
      ? say("{name} forks from {parent}: both now have block {blocks}. Nothing is copied.", values)
      : say("{name} forks from {parent}: both now have blocks {blocks}. Nothing is copied.", values);
  },
  ended: (name, freed, kept) => {
    const said = [say("{name} ends.", { name })];
    if (freed.length === 1) said.push(say("Free again: block {block}.", { block: freed[0] }));
    if (freed.length > 1) said.push(say("Free again: blocks {blocks}.", { blocks: joined(freed) }));
    if (kept.length === 1) said.push(say("Others still have block {block}.", { block: kept[0] }));
    if (kept.length > 1) said.push(say("Others still have blocks {blocks}.", { blocks: joined(kept) }));
    return inOne(...said);
  },
};

const TRAITS = ["block_size", "num_blocks", "reserve", "events", "step"];
const SIZES = [1, 2, 4, 8, 16];
const LETTERS = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"];
const HUES = 8;

const joined = (names) => names.join(", ");

// The colour of a request, or a band of each one's for those who share.
function fill(names) {
  const at = (k) => `${(100 * k) / names.length}%`;
  const stops = names.map((n, k) => `var(--attn-hue-${LETTERS.indexOf(n) % HUES}) ${at(k)} ${at(k + 1)}`);
  return `linear-gradient(${stops})`;
}

function draw({ model, listen }) {
  const { state, put } = stateOf(model, TRAITS);
  const first = { ...state(), step: 0 };

  // What is on the page, from top to bottom.
  const button = (text, press, label = text) => {
    const box = make("button", { type: "button", class: "attn-button", "aria-label": label }, text);
    listen(box, "click", () => box.getAttribute("aria-disabled") === "true" || press());
    return box;
  };
  const can = (thing, able) => thing.setAttribute("aria-disabled", !able); // were it disabled, it would lose the focus
  const slider = (name, max, change) => {
    const input = make("input", { type: "range", name, min: 1, max, step: 1, "aria-label": TEXT[name] });
    const value = span("value");
    listen(input, "input", () => change(Number(input.value)));
    const follow = (at, said) => {
      input.value = at;
      value.textContent = said;
      input.setAttribute("aria-valuetext", said);
    };
    return { input, follow, box: make("label", { class: "attn-slider" }, span("label", TEXT[name]), input, value) };
  };
  const step = (by) => () => put({ step: model.get("step") + by });
  const [back, next] = [button(TEXT.back, step(-1)), button(TEXT.next, step(1))];
  next.classList.add("attn-main");
  const steps = span("steps");
  const told = make("output", { class: "attn-read", "aria-live": "polite" });
  const pool = make("div", { class: "attn-pool", role: "listbox", "aria-label": TEXT.blocks });
  const list = make("div", { class: "attn-requests", role: "list", "aria-label": TEXT.requests });
  const [poolName, note, nobody, memoryName] = [part("name"), part("note"), part("note", TEXT.nobody), part("name")];
  const keys = ["token", "rest", "free", "shared", "fresh"].map((name) =>
    span("key", span(`sample attn-${name}`, name === "shared" ? "2" : ""), TEXT[name]),
  );
  const prompt = slider("prompt", 24, (value) => prompt.follow(value, TEXT.tokens(value)));
  prompt.follow(7, TEXT.tokens(7));
  const start = button(TEXT.start, () => act("start", now.unused, Number(prompt.input.value)));
  const decode = button(TEXT.decode, () => act("decode"));
  const blockSize = slider("size", 5, (k) => put({ block_size: sizes()[k - 1], num_blocks: slots() / sizes()[k - 1] }));
  const reserve = slider("reserve", 64, (value) => put({ reserve: value }));
  const strips = [TEXT.paged, TEXT.whole].map((name) => {
    const [strip, said] = [make("div", { class: "attn-strip", "aria-hidden": true }), part("said")];
    return { strip, said, box: part("scheme", part("scheme-name", name), strip, said) };
  });
  const story = part("story", steps, back, next, button(TEXT.restart, () => put(first)));
  const root = card(
    "paged",
    TEXT.title,
    part("bar", span("title", TEXT.title), story),
    told,
    part("panel", poolName, pool, note, part("legend", ...keys)),
    part("panel", part("name", TEXT.requests), nobody, list, part("acts", start, prompt.box, decode)),
    part("panel", memoryName, ...strips.map(({ box }) => box), part("acts", blockSize.box, reserve.box)),
  );

  let [now, blocks] = [null, []]; // what the events have led to, and the pool's boxes
  let [pointed, focused, at] = [{}, {}, 0]; // a block or request under the pointer, with the focus; the keys' block
  const rows = new Map();

  const slots = () => model.get("block_size") * model.get("num_blocks");
  // The memory stays, whatever the size of the blocks it is cut into.
  const sizes = () => SIZES.filter((size) => slots() % size === 0 && slots() / size <= 128);

  // An action of the reader's own takes the place of what would have come next, and of one that could not be done.
  function act(...event) {
    const { events, step } = state();
    const kept = events.slice(0, now.idle ? step - 1 : step);
    put({ events: [...kept, event], step: kept.length + 1 });
  }

  function drawPool(size) {
    const held = pool.contains(pool.getRootNode().activeElement);
    blocks = now.owners.map((owners, block) => {
      const [filled, count] = [now.filled[block], now.references[block]];
      const cells = Array.from({ length: size }, (_, slot) =>
        span(`slot ${slot < filled ? "attn-full" : ""} ${now.written.has(`${block}:${slot}`) ? "attn-fresh" : ""}`),
      );
      const head = part("head", span("number", block), span("owners", owners.join("")));
      const badge = count > 1 ? [span("badge", count)] : [];
      const box = part("block", head, part("slots", ...cells), ...badge);
      box.classList.toggle("attn-free", !count);
      box.classList.toggle("attn-freed", now.freed.includes(block));
      box.dataset.block = block;
      box.setAttribute("role", "option");
      box.setAttribute("aria-label", about(block, size));
      if (count) box.style.setProperty("--attn-fill", fill(owners));
      return box;
    });
    at = Math.min(at, blocks.length - 1);
    pool.dataset.size = size;
    pool.replaceChildren(...blocks);
    if (held) blocks[at].focus();
  }

  function about(block, size) {
    const [[name, ...others], filled] = [now.owners[block], now.filled[block]];
    if (!name) return TEXT.freeBlock(block);
    const begin = now.requests.get(name).table.indexOf(block) * size;
    return TEXT.takenBlock(block, begin, begin + filled - 1, joined([name, ...others]), filled, size);
  }

  function makeRow(name, kind) {
    const [length, table, chip] = [span("length"), part("table"), span("chip", name)];
    const size = model.get("block_size");
    const running = [
      button(TEXT.grow, () => act("grow", name), TEXT.growOf(name)),
      ...(size > 1 ? [button(TEXT.more(size), () => act("grow", name, size), TEXT.chunkOf(name, size))] : []),
      button(TEXT.fork, () => now.unused && act("fork", name, now.unused), TEXT.forkOf(name)),
      button(TEXT.preempt, () => act("preempt", name), TEXT.preemptOf(name)),
    ];
    const acts = part(
      "acts",
      ...(kind ? running : [button(TEXT.resume, () => act("resume", name), TEXT.resumeOf(name))]),
      button(TEXT.end, () => act("end", name), TEXT.endOf(name)),
    );
    chip.style.background = fill([name]);
    const box = make("div", { class: "attn-request", role: "listitem", "data-name": name }, chip, length, acts, table);
    return { box, length, table, kind, last: acts.lastChild };
  }

  function drawRequests() {
    const active = list.getRootNode().activeElement;
    // A row is of one kind: of a request that is preempted (0), or that runs in blocks of a size.
    const size = model.get("block_size");
    const waiting = [...now.preempted].map(([name, length]) => [name, { length, table: [], kind: 0 }]);
    const all = new Map([...[...now.requests].map(([name, request]) => [name, { ...request, kind: size }]), ...waiting]);
    const stays = (name) => all.get(name)?.kind === rows.get(name)?.kind;
    const left = [...list.children].findIndex((box) => box.contains(active) && !stays(box.dataset.name));
    for (const [name, { box }] of rows) if (!stays(name)) [rows.delete(name), box.remove()];
    [...all].forEach(([name, { length, table, kind }], k) => {
      if (!rows.has(name)) rows.set(name, makeRow(name, kind));
      const row = rows.get(name);
      if (list.children[k] !== row.box) list.insertBefore(row.box, list.children[k] ?? null);
      row.length.textContent = kind ? TEXT.tokens(length) : TEXT.outside(length);
      row.table.replaceChildren(...table.map((block, i) => span("entry", span("logical", `${i}→`), block)));
      table.forEach((block, i) => (row.table.children[i].dataset.block = block));
    });
    // The focus of a row that is gone goes to the next, or to what begins another.
    const near = list.children[Math.min(left, rows.size - 1)];
    if (left >= 0) (near ? rows.get(near.dataset.name).last : start).focus({ preventScroll: true });
    nobody.hidden = !(list.hidden = rows.size === 0);
  }

  // Both schemes to one scale: tokens in the colours of their requests, what is reserved and empty, what is free.
  function drawMemory(size, count) {
    const all = size * count;
    const lengths = [...now.requests].map(([name, { length }]) => [name, length]);
    const tokens = (some) => sum(some.map(([, length]) => length));
    const most = Math.max(model.get("reserve"), ...lengths.map(([, length]) => length));
    const inside = lengths.slice(0, Math.floor(all / most));
    const stored = {};
    now.owners.map(joined).forEach((names, block) => (stored[names] = (stored[names] ?? 0) + now.filled[block]));
    const [used, reserved] = [sum(now.filled), (count - now.free.length) * size];
    const paged = [...Object.keys(stored).sort().map((names) => [names, stored[names]]), ["", reserved - used]];
    const whole = inside.flatMap(([name, length]) => [[name, length], ["", most - length]]);
    [paged, whole].forEach((parts, k) => {
      const segments = parts.filter(([, n]) => n).map(([names, n]) => {
        const owners = names ? names.split(", ") : [];
        const letters = n / all > 0.016 * (owners.length + 1) ? owners.join("") : "";
        // Letters across the colours of several requests could not be read: they stand on paper.
        const segment = span(names ? "full" : "rest", letters && owners[1] ? span("letters", letters) : letters);
        if (names) segment.style.setProperty("--attn-fill", fill(owners));
        segment.style.width = `${(100 * n) / all}%`;
        return segment;
      });
      strips[k].strip.replaceChildren(...segments);
    });
    strips[0].said.textContent = inOne(TEXT.use(used, reserved), TEXT.saved(tokens(lengths) - used));
    const outside = joined(lengths.slice(inside.length).map(([name]) => name));
    const room = (outside ? TEXT.noRoom : TEXT.room)(most, Math.floor(all / most), outside);
    strips[1].said.textContent = inOne(TEXT.use(tokens(inside), inside.length * most), room);
    memoryName.textContent = TEXT.memory(all);
    blockSize.input.max = sizes().length;
    blockSize.follow(sizes().indexOf(size) + 1, TEXT.slots(size));
    reserve.follow(most, TEXT.slots(most));
  }

  // The block or the request that is pointed at, or else has the focus, stands out with what belongs to it.
  function mark() {
    const { block, name } = pointed.block ?? pointed.name ? pointed : focused;
    const { table = [], length } = now.requests.get(name) ?? {};
    const size = model.get("block_size");
    blocks.forEach((box, k) => {
      box.classList.toggle("attn-on", block ? k === Number(block) : table.includes(k));
      box.tabIndex = k === at ? 0 : -1;
      box.setAttribute("aria-selected", k === at);
    });
    for (const [owner, row] of rows) {
      row.box.classList.toggle("attn-on", block ? now.owners[block]?.includes(owner) : owner === name);
      for (const entry of row.table.children) entry.classList.toggle("attn-on", entry.dataset.block === block);
    }
    note.classList.toggle("attn-hint", !block && !length);
    const place = (last) => [name, last, size, Math.floor(last / size), table.at(-1), last % size];
    if (blocks[block]) note.textContent = about(Number(block), size);
    else note.textContent = length ? TEXT.request(...place(length - 1)) : TEXT.hint;
  }

  function update() {
    const { block_size: size, num_blocks: count, events, step } = state();
    now = replay(events.slice(0, step), size, count);
    drawPool(size);
    drawRequests();
    drawMemory(size, count);
    poolName.textContent = TEXT.pool(count - now.free.length, count);
    steps.textContent = TEXT.steps(step, events.length);
    told.textContent = now.said;
    const able = [[back, step > 0], [next, step < events.length], [start, now.unused], [decode, now.requests.size]];
    for (const [thing, is] of able) can(thing, Boolean(is));
    mark();
  }

  const pointedAt = ({ target }) => ({ ...target.closest("[data-block], [data-name]")?.dataset });
  listen(root, "pointerover", (event) => mark((pointed = pointedAt(event))));
  listen(root, "pointerleave", () => mark((pointed = {})));
  listen(root, "focusin", (event) => mark((focused = pointedAt(event))));
  listen(root, "focusout", () => mark((focused = {})));
  const walk = (to) => {
    at = Math.max(0, Math.min(to, blocks.length - 1));
    mark(); // a block that was clicked has the focus already
    blocks[at].focus();
  };
  listen(pool, "click", (event) => pointedAt(event).block && walk(Number(pointedAt(event).block)));
  listen(pool, "keydown", (event) => {
    const across = blocks.filter((box) => box.offsetTop === blocks[0].offsetTop).length;
    const last = blocks.length - 1;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -last, End: last };
    if (event.ctrlKey || event.altKey || event.metaKey || !by[event.key]) return;
    pointed = {};
    walk(at + by[event.key]);
    event.preventDefault();
  });

  return { root, traits: TRAITS, update };
}

export default { render: mount(draw) };
