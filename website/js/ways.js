// A way through the book: where the reader came along one (?way=inference), a line at the head of a page says which of
// its sections belong to it, and Next leads to the way's next stop. The tab remembers the way; from a disk, where a
// browser may give each file a memory of its own, the addresses carry it on.
{
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location);
  const key = `attention book, way in ${root.pathname}`;
  const article = document.querySelector("article.bd-article");
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const said = (text, values) => say(text).replace(/\{(\w+)\}/g, (_, name) => values[name]);

  let [way, last] = [new URL(location).searchParams.get("way"), 0];
  const keep = (stop) => {
    try {
      sessionStorage.setItem(key, JSON.stringify([way, stop]));
    } catch {} // a browser may forbid it: then the address alone says so
  };
  try {
    const [kept, stop] = JSON.parse(sessionStorage.getItem(key)) ?? [];
    if (!way || way === kept) [way, last] = [kept, stop];
  } catch {} // as above

  function follow({ title, stops }) {
    const addressOf = (stop, place = "") => `${new URL(stop.page, root).href}?way=${way}${place && `#${place}`}`;
    const at = stops.findIndex((stop) => new URL(stop.page, root).pathname === location.pathname);
    const leave = element("button", { type: "button" }, say("Leave this way"));
    leave.addEventListener("click", () => {
      try {
        sessionStorage.removeItem(key);
      } catch {} // as above
      location.replace(location.pathname);
    });
    const bar = element("nav", { class: "way-bar", "aria-label": title });
    const goOn = (stop, place, text) => element("a", { href: addressOf(stop, place) }, text);
    if (at < 0) {
      const back = stops[Math.min(last, stops.length - 1)];
      bar.append(element("strong", {}, title), " ", goOn(back, "", said("Back to {title}", back)), " ", leave);
      return article.prepend(bar);
    }
    keep(at);
    const stop = stops[at];
    const where = said("{way}, stop {at} of {count}", { way: title, at: at + 1, count: stops.length });
    const places = stop.sections.flatMap(([place, name]) => [goOn(stop, place, name), " "]);
    bar.append(element("strong", {}, where), " ", ...places, leave);
    article.prepend(bar);

    // Previous and Next, and a link from the end of each section after which the way leaves out what follows.
    const next = stops[at + 1];
    lead(".left-prev", stops[at - 1], at);
    lead(".right-next", next, at + 2);
    stop.sections.forEach(([place], k) => {
      const [then] = stop.sections[k + 1] ?? [];
      const section = document.getElementById(place);
      if (!section || (then && section.nextElementSibling?.id === then)) return;
      const [, name] = stop.sections[k + 1] ?? [];
      const to = then ? goOn(stop, then, name) : next ? goOn(next, "", next.title) : element("a", { href: home }, ended);
      section.append(element("p", { class: "way-on" }, element("strong", {}, title), " → ", to));
    });

    function lead(selector, to, number) {
      const link = document.querySelector(`.prev-next-area ${selector}`);
      if (!link || (!to && number < stops.length)) return; // before the first stop, the page before
      const values = { at: number, count: stops.length };
      const isBack = selector === ".left-prev";
      const subtitle = isBack ? said("previous, stop {at} of {count}", values) : said("next, stop {at} of {count}", values);
      link.href = to ? addressOf(to) : home;
      link.querySelector(".prev-next-subtitle").textContent = to ? subtitle : title;
      link.querySelector(".prev-next-title").textContent = to ? to.title : ended;
      link.querySelector(".prev-next-line").textContent = to?.line ?? "";
      const picture = link.querySelector(".prev-next-picture");
      picture.hidden = !to?.image;
      if (to?.image) picture.src = new URL(to.image, root).href;
    }
  }
  const home = `${new URL("index.html", root).href}#a-map-and-three-ways`;
  const ended = say("The way ends here: back to the map");

  if (way && article && DOCUMENTATION_OPTIONS.pagename !== "index") {
    const script = element("script", { src: new URL("_static/way_stops.js", root).href });
    script.addEventListener("load", () => Object.hasOwn(attentionBookWays, way) && follow(attentionBookWays[way]));
    document.head.append(script);
  }
}
