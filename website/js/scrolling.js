// What scrolls sideways fades at the edge behind which there is more.
function fade(wide) {
  wide.classList.toggle("more", wide.scrollWidth - wide.clientWidth - wide.scrollLeft > 2);
}
const FADING =
  "article :is(pre, table, div.math mjx-container, .pst-scrollable-table-container, .cell_output .text_html, .attn-scroll, .enlarged > div)";
document.addEventListener("scroll", ({ target }) => target.matches?.(FADING) && fade(target), true);

// The theme lets keys reach what scrolls sideways, but it measures once, when folded solutions have no width yet, and
// again when the window changes its size. So the page says that its size changed whenever the text did, though not
// before a widget that changed it has answered. Of formulas and tables of results the theme knows nothing: those that
// scroll are reached by keys, and no others.
function measure() {
  dispatchEvent(new Event("resize"));
  for (const wide of document.querySelectorAll("div.math, div.math mjx-container, table.results")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    else wide.removeAttribute("tabindex");
  }
  document.querySelectorAll(FADING).forEach(fade);
}
let measuring;
new ResizeObserver(() => {
  clearTimeout(measuring);
  measuring = setTimeout(measure, 100);
}).observe(document.getElementById("main-content"));
