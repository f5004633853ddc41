// The policy of a paged cache, without a picture: `TEXT` is that of the page that shows it.

// What the events lead to, as the package's BlockTables have it: the block freed last is used first.
function replay(events, size, count) {
  const free = Array.from({ length: count }, (_, k) => count - 1 - k);
  const [references, filled, copies] = [Array(count).fill(0), Array(count).fill(0), []];
  const [requests, preempted, names] = [new Map(), new Map(), new Set()]; // of those preempted their lengths
  let [written, freed, idle, said, begun] = [new Set(), [], false, TEXT.empty, 0];

  const take = () => {
    references[free.at(-1)] = 1;
    return free.pop();
  };
  const write = (block, slot) => {
    filled[block] = slot + 1;
    written.add(`${block}:${slot}`);
  };
  // Find room for a request's new tokens. Where too few blocks are free, nothing changes.
  const append = (request, tokens) => {
    const { table, length } = request;
    const [source, end] = [table.at(-1), length + tokens];
    const owners = length % size ? references[source] : 1; // a full block is not written again
    const needed = Math.ceil(end / size) - table.length + (owners > 1 ? 1 : 0);
    if (needed > free.length) return { needed };
    if (owners > 1) {
      references[source] -= 1;
      table[table.length - 1] = take();
      copies.push([source, table.at(-1)]);
      for (let slot = 0; slot < length % size; slot++) write(table.at(-1), slot);
    }
    const before = table.length;
    while (table.length * size < end) table.push(take());
    for (let i = length; i < end; i++) write(table[Math.floor(i / size)], i % size);
    request.length = end;
    return { taken: table.slice(before), block: table.at(-1), source, owners };
  };
  const grow = (all, tokens = 1) => {
    const [stay, other, wait] = [[], [], []];
    for (const name of all) {
      const { needed, taken, block, source, owners } = append(requests.get(name), tokens);
      if (needed) wait.push(name);
      else if (tokens > 1) other.push(TEXT.chunk(name, tokens, taken));
      else if (owners > 1) other.push(TEXT.copied(name, source, owners, block));
      else if (taken.length) other.push(TEXT.took(name, block));
      else stay.push([name, block]);
    }
    idle = wait.length === all.length;
    const [stayed, blocks] = [stay.map(([name]) => name), stay.map(([, block]) => block)];
    if (stay.length) other.unshift(TEXT.stayed(stayed, blocks));
    if (wait.length) other.push(TEXT.waits(wait));
    return other.join("\n") || TEXT.empty;
  };
  // Take a request's blocks from it: those that become free, and those that others still have.
  const release = (name) => {
    const { table } = requests.get(name);
    for (const block of table) references[block] -= 1;
    freed = table.filter((block) => !references[block]);
    for (const block of freed) filled[block] = 0;
    free.push(...[...freed].reverse());
    requests.delete(name);
    return table.filter((block) => references[block]);
  };
  const begin = (name, tokens, tell) => {
    const request = { length: 0, table: [] };
    const { needed, taken } = append(request, tokens);
    idle = !taken;
    if (idle) return TEXT.refused(name, needed, free.length);
    requests.set(name, request);
    return tell(name, tokens, taken);
  };
  const actions = {
    start: (name, tokens) => begin(name, tokens, TEXT.started),
    grow: (name, tokens) => grow([name], tokens),
    preempt(name) {
      const { length } = requests.get(name);
      preempted.set(name, length);
      release(name);
      return TEXT.preempted(name, length, freed);
    },
    resume(name) {
      const told = begin(name, preempted.get(name), TEXT.resumed);
      if (!idle) preempted.delete(name);
      return told;
    },
    decode: () => grow([...requests.keys()]),
    fork(parent, name) {
      const { table, length } = requests.get(parent);
      for (const block of table) references[block] += 1;
      requests.set(name, { length, table: [...table] });
      return TEXT.forked(parent, name, table);
    },
    end(name) {
      const kept = preempted.delete(name) ? [] : release(name);
      return TEXT.ended(name, freed, kept);
    },
  };
  events.forEach(([action, name, ...rest], k) => {
    [written, freed] = [new Set(), []];
    const there = { start: true, decode: true, resume: preempted.has(name), end: requests.has(name) || preempted.has(name) };
    idle = !(there[action] ?? requests.has(name)); // its start has found no room
    said = idle ? TEXT.absent(name) : actions[action](name, ...rest);
    if (action === "end") names.delete(name);
    // The name of one who is turned away last is free for the next try.
    if ((action === "start" || action === "fork") && !(idle && k === events.length - 1)) {
      names.add(action === "start" ? name : rest[0]);
      begun += 1;
    }
  });
  const owners = references.map(() => []);
  for (const [name, { table }] of requests) for (const block of table) owners[block].push(name);
  const unused = [...LETTERS.slice(begun % LETTERS.length), ...LETTERS].find((name) => !names.has(name));
  return { requests, preempted, references, filled, owners, free, copies, written, freed, idle, said, unused };
}
