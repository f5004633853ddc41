// The theme lets keys reach what scrolls sideways, but it measures once, when folded solutions have no width yet, and
// again when the window changes its size. So the page says that its size changed whenever the text did.
// Of formulas and tables of results it knows nothing: those that scroll are reached by keys, and no others.
new ResizeObserver(() => {
  dispatchEvent(new Event("resize"));
  for (const wide of document.querySelectorAll("div.math, div.math mjx-container, table.results")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    else wide.removeAttribute("tabindex");
  }
}).observe(document.getElementById("main-content"));
