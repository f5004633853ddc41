// Where the reader is: the bar names the section and shows how much of the page lies behind, the panel of contents
// follows, and the first page offers to continue at the section where the reader was last.
{
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location).pathname;
  const key = `attention book, place in ${root}`;
  const bar = document.querySelector(".bd-header-article");
  const headings = [...document.querySelectorAll("article section[id] > :is(h1, h2, h3)")];
  const links = [...document.querySelectorAll("#pst-page-toc-nav a")];
  const entries = document.querySelectorAll("#pst-page-toc-nav .toc-entry");
  const place = document.createElement("div");
  place.className = "book-place";
  place.ariaHidden = "true"; // the heading says it
  bar?.querySelector(".header-article-items__start")?.after(place);

  const titleOf = (heading) => {
    const copy = heading.cloneNode(true);
    copy.querySelector(".headerlink")?.remove();
    return copy.textContent;
  };

  const hashOf = (heading) => (heading.matches("h1") ? "" : `#${heading.parentElement.id}`);
  const linkOf = (heading) => links.find((link) => link.hash === hashOf(heading));

  let current = null;
  function enter(heading) {
    current = heading;
    const active = linkOf(heading);
    for (const link of links) {
      link.classList.toggle("active", link === active);
      if (link === active) link.ariaCurrent = "true";
      else link.removeAttribute("aria-current");
    }
    for (const entry of entries) entry.classList.toggle("active", Boolean(active) && entry.contains(active));
    const panel = active && active.closest(".bd-sidebar-secondary");
    if (panel) {
      const [inner, outer] = [active, panel].map((element) => element.getBoundingClientRect());
      const isOutside = inner.top < outer.top + 60 || inner.bottom > outer.bottom - 60;
      if (isOutside) panel.scrollTop += inner.top - outer.top - outer.height / 2;
    }
    for (const link of document.querySelectorAll("a.book-edition")) link.hash = hashOf(heading); // in other languages
    if (!document.querySelector("article h1 .section-number")) return; // no chapter
    try {
      const address = location.pathname.slice(root.length) + hashOf(heading);
      localStorage.setItem(key, JSON.stringify([address, titleOf(heading)]));
    } catch {} // a browser may forbid it: then the first page offers nothing
  }
  function look() {
    if (!bar || !headings.length) return;
    // The last heading in the upper third of the window, or in all of it at the page's end.
    const below = document.documentElement.scrollHeight - innerHeight;
    const line = Math.max(0.3 * innerHeight, innerHeight - (below - scrollY));
    const isAbove = (heading) => heading.getBoundingClientRect().top < line;
    const heading = (below > 0 && headings.findLast(isAbove)) || headings[0];
    if (heading !== current || linkOf(heading)?.ariaCurrent === null) enter(heading);
    bar.style.setProperty("--book-progress", below > 0 ? Math.min(1, scrollY / below) : 0);
    const isPassed = headings[0].getBoundingClientRect().bottom < bar.getBoundingClientRect().bottom;
    place.textContent = isPassed ? titleOf(heading) : "";
  }
  addEventListener("scroll", () => requestAnimationFrame(look));
  addEventListener("resize", look);
  // The theme marks an entry too, but keeps it where one scrolls up.
  const marks = new MutationObserver(look);
  for (const link of links) marks.observe(link, { attributeFilter: ["aria-current"] });

  // The list of chapters opens at the one that is read; on a phone it lies in a dialog.
  function showChapter() {
    const link = document.querySelector(".bd-sidebar-primary li.current > a, #pst-primary-sidebar-modal li.current > a");
    for (let box = link?.parentElement; box && box !== document.body; box = box.parentElement) {
      if (box.scrollHeight <= box.clientHeight || !/auto|scroll/.test(getComputedStyle(box).overflowY)) continue;
      const [inner, outer] = [link, box].map((element) => element.getBoundingClientRect());
      box.scrollTop += inner.top - outer.top - outer.height / 2;
      return;
    }
  }
  addEventListener("load", showChapter); // after the theme's own attempt
  // Nor does the list of sections stay open above the one that was chosen in it.
  document.querySelector("#pst-secondary-sidebar-modal")?.addEventListener("click", ({ target, currentTarget }) => {
    if (target.closest("a[href^='#']")) currentTarget.close();
  });
  for (const toggle of document.querySelectorAll(".primary-toggle")) {
    toggle.addEventListener("click", () => setTimeout(showChapter));
  }

  const start = document.querySelector("article a.sd-btn");
  let last = null;
  try {
    last = JSON.parse(localStorage.getItem(key));
  } catch {} // as above
  if (start && DOCUMENTATION_OPTIONS.pagename === "index" && last) {
    const [href, title] = last;
    const link = start.cloneNode();
    link.href = root + href;
    link.textContent = say("Continue at {place}").replace("{place}", () => title.replace(/^([\d.]+)\. /, "$1 "));
    start.before(link, " ");
    start.classList.replace("sd-btn-primary", "sd-btn-outline-primary");
  }
  look();
}
