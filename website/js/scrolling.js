// The theme lets keys reach what scrolls sideways, but it measures once, when folded solutions have no width yet, and
// again when the window changes its size. So the page says that its size changed whenever the text did.
new ResizeObserver(() => dispatchEvent(new Event("resize"))).observe(document.getElementById("main-content"));
