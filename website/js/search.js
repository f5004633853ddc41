// Finds sections while one types, in the dialog and on the search page. The index (website/sections.py) is loaded when
// a field gets the focus; all the rest happens in the browser, so that it works from a disk too.
{
  const SAID_OFTEN = new Set(
    ("a an and are as at be by can do does for from how i in is it my of on or that the there this to we what when " +
      "where which why with you").split(" "),
  );
  const HAN = /^\p{Script=Han}/u;
  const WORD = /\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{L}\p{N}])+/gu;
  const ROOT = /√|square roots?|平方根/g;
  const LARGEST = 8; // results in the dialog

  // Chinese has no blanks: its words are pairs of characters, and the last character alone.
  const pairs = (run) => [...run].map((sign, at, all) => sign + (all[at + 1] ?? ""));
  const wordsOf = (text) => {
    const plain = text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(ROOT, " sqrt ");
    const british = plain.replace(/(?<=\p{L}{3})iz(?=[aei]|(?!\p{L}))/gu, "is");
    return (british.match(WORD) ?? []).flatMap((word) => (HAN.test(word) ? pairs(word) : [word]));
  };
  const asked = (query) => {
    const isWhole = (word, at, all) => word && (!HAN.test(word) || [...word].length > 1 || !HAN.test(all[at - 1] ?? ""));
    const words = query.split(" ").filter(isWhole);
    const rare = words.filter((word) => !SAID_OFTEN.has(word));
    return rare.length ? rare : words;
  };
  // Two forms of an English word have the same stem, more often than not.
  const stem = (word) => {
    const one = word.replace(/(?<=.{2}[^s])s$/, "");
    const bare = one.replace(/(?<=.{4})(?:ation|ing|ed|e)$/, "");
    return bare === one ? bare : bare.replace(/([bdgmnprt])\1$/, "$1");
  };

  async function read(search) {
    const file = (name) => new URL(`_static/${name}`, search);
    let packed;
    if (location.protocol === "file:") {
      await new Promise((done, fail) => {
        const script = document.createElement("script");
        Object.assign(script, { src: file("sections.js"), onload: done, onerror: fail });
        document.head.append(script);
      });
      packed = new Blob([Uint8Array.from(atob(globalThis.attentionBookSections), (sign) => sign.charCodeAt(0))]).stream();
    } else {
      packed = (await fetch(file("sections.bin"))).body;
    }
    const unpacked = await new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
    const { pages, names } = JSON.parse(new TextDecoder("gb18030").decode(unpacked));

    const sections = [];
    const found = new Map(); // word → where it stands: [section, paragraph or -1 for the title, how often]
    const enter = (section, at, text, worth = 1) => {
      const counts = new Map();
      for (const word of wordsOf(text)) counts.set(word, (counts.get(word) ?? 0) + worth);
      for (const [word, count] of counts) {
        if (!found.has(word)) found.set(word, []);
        found.get(word).push([section, at, count]);
      }
      return counts.size;
    };
    for (const [address, parts] of pages) {
      for (const [place, title, text, rest] of parts) {
        const href = new URL(address + (place && `#${place}`), search).href;
        // A chapter comes before the appendices, and these before the glossary and the first page.
        const weight = /\/\d/.test(address) ? 1 : address.startsWith("chapters/") ? 0.7 : 0.35;
        const section = { href, title, page: parts[0][1], weight, paragraphs: text.split("\n"), rest };
        section.length = enter(sections.length, -1, title.replace(/^[\d.]+ /, ""));
        section.paragraphs.forEach((paragraph, at) => enter(sections.length, at, paragraph));
        enter(sections.length, section.paragraphs.length, rest, 1 / 3); // which makes half of what it is in prose
        sections.push(section);
      }
    }
    const stems = [...found.keys()].map((word) => [word, stem(word)]);
    return { sections, found, stems, names: names.map((group) => group.map((name) => wordsOf(name).join(" "))) };
  }

  // Where a word of the query stands, and how well it fits there. The last one may not be typed to its end.
  function places({ found, stems }, word, isLast) {
    const all = [];
    const root = stem(word);
    const isLong = word.length > (isLast ? 1 : 2) || HAN.test(word);
    for (const [other, otherStem] of stems) {
      const fit = other === word ? 1 : otherStem === root ? 0.95 : isLong && other.startsWith(word) ? 0.6 : 0;
      if (fit) for (const [section, at, count] of found.get(other)) all.push([section, at, (fit * 2 * count) / (count + 1)]);
    }
    return all;
  }

  function scores(index, words) {
    const rated = new Map();
    let whole = 0;
    words.forEach((word, number) => {
      const all = places(index, word, number === words.length - 1);
      const rarity = Math.log(1 + index.sections.length / (1 + new Set(all.map(([section]) => section)).size));
      const seen = new Map();
      whole += rarity;
      const of = (section) => {
        if (!rated.has(section)) rated.set(section, { title: 0, said: 0, covered: 0, paragraphs: new Map() });
        return rated.get(section);
      };
      for (const [section, at, fit] of all) {
        const rate = of(section);
        if (at < 0) rate.title += Math.min(fit, 1) * rarity;
        else {
          rate.paragraphs.set(at, (rate.paragraphs.get(at) ?? 0) + fit * rarity);
          rate.said += fit * rarity;
        }
        seen.set(section, Math.max(seen.get(section) ?? 0, Math.min(fit, 1)));
      }
      for (const [section, fit] of seen) of(section).covered += fit * rarity;
    });
    for (const [number, rate] of rated) {
      const { length, weight } = index.sections[number];
      const [best, value] = [...rate.paragraphs].reduce((a, b) => (b[1] > a[1] ? b : a), [0, 0]);
      const isTitle = rate.title / whole > 0.9 && length === words.length;
      const title = rate.title * (1 + Math.min(1, words.length / length)) * (isTitle ? 2 : 1);
      rate.score = weight * (title + value + Math.log(1 + rate.said)) * (rate.covered / whole) ** 2;
      rate.best = best;
    }
    return rated;
  }

  // The query as it is, and with each name of the glossary in it exchanged for the others.
  function search(index, text) {
    const words = wordsOf(text).join(" ");
    const queries = [[words, 1]];
    for (const group of index.names) {
      for (const name of group) {
        if (!` ${words} `.includes(` ${name} `)) continue;
        for (const other of group) {
          // Of a Chinese name, the English one is rare in the pages, so that it would count for too much.
          const trust = HAN.test(name) && !HAN.test(other) ? 0.1 : 0.6;
          if (other !== name) queries.push([` ${words} `.replace(` ${name} `, ` ${other} `).trim(), trust]);
        }
      }
    }
    const results = new Map();
    for (const [query, trust] of queries) {
      for (const [number, { score, best }] of scores(index, asked(query))) {
        const result = results.get(number) ?? { ...index.sections[number], score: 0, most: 0, best: 0 };
        result.score += trust * score;
        if (trust * score > result.most) Object.assign(result, { most: trust * score, best });
        results.set(number, result);
      }
    }
    const most = Math.max(...[...results.values()].map(({ score }) => score));
    let all = [...results.values()].filter(({ score }) => score > most / 20).sort((a, b) => b.score - a.score);
    // A chapter whose title begins with this comes first, and what the glossary says of just this third at the latest.
    const beginning = asked(words).join(" ");
    const begins = ({ page, title }) =>
      page === title && wordsOf(title.replace(/^[\d.]+ /, "")).join(" ").startsWith(beginning);
    all = [...all.filter(begins), ...all.filter((result) => !begins(result))];
    const isAsked = ({ href, title }) =>
      href.includes("#term-") && queries.some(([query]) => query === wordsOf(title).join(" "));
    const term = all.findIndex(isAsked);
    if (term > 2) all.splice(2, 0, ...all.splice(term, 1));
    // And the section or the chapter of just this number comes first.
    const number = /^(?:chapter|section|§|第)? ?(\d+(?:\.\d+)*) ?[章节]?$/i.exec(text)?.[1];
    const numbered = number && index.sections.find(({ title }) => title.startsWith(`${number}. `));
    if (numbered) all = [{ ...numbered, best: 0 }, ...all.filter(({ href }) => href !== numbered.href)];
    const asRoot = (word) => (word === "sqrt" ? ROOT.source : stem(word));
    const marks = [...new Set(queries.flatMap(([query]) => asked(query)))].map(asRoot);
    const letter = "(?:(?!\\p{Script=Han})[\\p{L}\\p{N}])";
    const patterns = marks.map((mark) => {
      if (HAN.test(mark) || mark === ROOT.source) return mark;
      return `(?<!${letter})${mark}${mark.length > 1 ? `${letter}*` : `(?!${letter})`}`;
    });
    return { all, marks: new RegExp(`(${patterns.join("|")})`, "giu") };
  }

  // How many letters are changed, left out, added, or exchanged with their neighbour.
  function distance(a, b) {
    const rows = [...Array(a.length + 1)].map((_, i) => [...Array(b.length + 1)].map((_, j) => i || j));
    for (let i = 1; i <= a.length; i++) {
      for (let j = 1; j <= b.length; j++) {
        const kept = rows[i - 1][j - 1] + (a[i - 1] !== b[j - 1]);
        rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, kept);
        const isTurned = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
        if (isTurned) rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
    return rows[a.length][b.length];
  }
  // A query with the nearest of the book's words for each of its own that the book does not have.
  function nearest(index, text) {
    const nearestTo = (word) => {
      const most = word.length < 4 || HAN.test(word) ? 0 : word.length < 7 ? 1 : 2;
      let best = [word, most + 1, 0];
      for (const [other, where] of index.found) {
        if (other[0] !== word[0] || Math.abs(other.length - word.length) > most) continue;
        const away = distance(word, other);
        if (away < best[1] || (away === best[1] && best[2] && where.length > best[2])) best = [other, away, where.length];
      }
      return best[0];
    };
    // A form of a known word is known, unless so much of a long one is its ending that it may be misspelt. The last one
    // may not be typed to its end.
    const isForm = (word, root) => root === stem(word) && (word.length < 6 || root.length >= word.length - 1);
    const isKnown = (word, at, all) =>
      index.found.has(word) ||
      index.stems.some(([other, root]) => isForm(word, root) || (at === all.length - 1 && other.startsWith(word)));
    return wordsOf(text).map((word, at, all) => (isKnown(word, at, all) ? word : nearestTo(word))).join(" ");
  }

  function marked(name, text, marks) {
    const element = document.createElement("span");
    element.className = `found-${name}`;
    text.split(marks).forEach((part, at) => {
      if (at % 2 === 0) return element.append(part);
      const mark = document.createElement("mark");
      mark.textContent = part;
      element.append(mark);
    });
    return element;
  }
  // The part of a paragraph in which the most words of the query stand together.
  function excerpt(paragraph, marks) {
    const found = [...paragraph.matchAll(marks)].map(({ 0: word, index: at }) => ({ at, word: word.toLowerCase() }));
    const after = ({ at }) => found.filter((other) => other.at >= at && other.at < at + 140);
    const kinds = (one) => new Set(after(one).map(({ word }) => word)).size;
    const first = found.reduce((best, one) => (kinds(one) > kinds(best) ? one : best), found[0] ?? { at: 0 });
    const blank = paragraph.slice(0, first.at).indexOf(" ", first.at - 80) + 1; // Chinese has few
    const start = first.at < 120 ? 0 : blank || first.at - 20;
    const part = paragraph.slice(start, start + 230);
    const isCut = start + 230 < paragraph.length;
    return (start ? "… " : "") + (isCut ? `${part.replace(/ [^ \p{Script=Han}]*$/u, "")} …` : part);
  }

  let index;
  document.querySelectorAll("form.bd-search").forEach((form, number) => {
    const field = form.querySelector("input");
    const dialog = form.closest("dialog");
    const list = document.createElement("div");
    const said = document.createElement("p");
    list.id = `found-${number}`;
    list.className = "found";
    list.hidden = true;
    said.className = "found-said";
    said.setAttribute("role", "status");
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", say("Sections found"));
    form.after(said, list);
    field.setAttribute("role", "combobox");
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", list.id);
    field.setAttribute("aria-expanded", "false");
    const load = () => {
      index ??= read(form.action).catch(() => null); // then Enter leads to the search page, which says so
      return index;
    };
    function choose(option) {
      list.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
      option?.setAttribute("aria-selected", "true");
      option?.scrollIntoView({ block: "nearest" });
      field.setAttribute("aria-activedescendant", option?.id ?? "");
    }
    function option(at, href, ...parts) {
      const link = document.createElement("a");
      Object.assign(link, { href, id: `${list.id}-${at}`, tabIndex: -1 });
      link.setAttribute("role", "option");
      link.setAttribute("aria-selected", "false");
      link.append(...parts);
      link.addEventListener("click", () => dialog?.close());
      return link;
    }
    let shown, waiting, pending;
    function settle() {
      clearTimeout(waiting);
      pending?.();
      pending = null;
    }
    async function show() {
      const known = await load();
      const text = field.value.trim();
      let { all, marks } = known && text ? search(known, text) : { all: [] };
      const near = known && text ? nearest(known, text) : "";
      const meant = near === wordsOf(text).join(" ") ? "" : near;
      if (meant) ({ all, marks } = search(known, meant));
      const most = dialog ? LARGEST : all.length;
      const draw = () => {
        const options = all.slice(0, most).map(({ href, title, page, paragraphs, rest, best }, at) => {
          const parts = [marked("title", title, marks)];
          if (page !== title) parts.push(marked("page", page, /$^/));
          const further = best in paragraphs ? [] : (rest.match(marks) ?? []); // in code, or far down in a paragraph
          const text = excerpt(paragraphs[best] ?? paragraphs[0], marks);
          if (text) parts.push(marked("text", text, marks));
          if (!further.length) return option(at, href, ...parts);
          const words = say("Further in this section: {words}").replace("{words}", further.slice(0, 4).join(", "));
          const to = `${href.includes("#") ? "" : "#"}:~:text=${encodeURIComponent(further[0])}`;
          return option(at, href + to, ...parts, marked("text", words, marks));
        });
        if (all.length > most) {
          const every = say("All {count} results").replace("{count}", all.length);
          options.push(option(most, `${form.action}?q=${encodeURIComponent(text)}`, marked("title", every, /$^/)));
        }
        list.replaceChildren(...options);
        list.hidden = !all.length;
        field.setAttribute("aria-expanded", String(!list.hidden));
        choose(list.firstElementChild);
      };
      const nothing = known ? say("Nothing found.") : say("The search could not be loaded.");
      const sections = all.length === 1 ? say("1 section found") : say("{count} sections found");
      const count = sections.replace("{count}", all.length);
      const instead = say('Results for "{words}": {count}').replace("{words}", () => meant).replace("{count}", count);
      const found = meant ? instead : count;
      const told = text && (all.length ? found : nothing);
      clearTimeout(waiting);
      pending = null;
      if (!meant) {
        if (all.length || !text) draw();
        if (told === said.textContent) return;
        said.textContent = "";
      }
      // Not while a word is being typed, when nothing may be found yet; and a corrected list comes together with its
      // note, which takes room.
      pending = () => {
        if (meant || !all.length) draw();
        said.classList.toggle("visually-hidden", Boolean(dialog) && !meant && all.length > 0);
        said.textContent = told;
      };
      waiting = setTimeout(settle, 500);
    }
    field.addEventListener("focus", load);
    field.addEventListener("input", () => {
      shown = show();
    });
    field.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) settle();
      if (!step || list.hidden) return;
      event.preventDefault();
      const options = [...list.children];
      const at = options.findIndex((option) => option.ariaSelected === "true");
      choose(options[(at + step + options.length) % options.length]);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      await shown;
      settle();
      const chosen = list.querySelector("[aria-selected=true]");
      if (chosen) chosen.click();
      else if ((await load()) === null && dialog) form.submit();
    });
    if (!dialog) {
      field.value = new URLSearchParams(location.search).get("q") ?? "";
      if (!field.value) field.focus();
      shown = show();
    }
  });
}
