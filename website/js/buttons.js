// The theme gives two of its buttons inline handlers; the template article-header-buttons.html takes them off.
// Pictures are loaded after the rest of a page, and all of them before it is printed.
addEventListener("load", () => {
  for (const picture of document.images) picture.loading = "eager";
});
async function printAll() {
  await Promise.allSettled([...document.images].map((picture) => picture.decode()));
  print();
}
const presses = { "download-pdf": printAll, fullscreen: () => toggleFullScreen() };
for (const [name, press] of Object.entries(presses)) {
  document.querySelector(`.btn-${name}-button`)?.addEventListener("click", press);
}
// Its menu calls the browser's print dialogue after what one may choose there.
const printing = document.querySelector(".btn-download-pdf-button");
if (printing) {
  printing.querySelector(".btn__text-container").textContent = printing.title = say("Print this page");
}
// Paper is white, whatever the screen is.
{
  const root = document.documentElement;
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = before;
  });
}
// The button of a fold is called what the fold is, and one that copies by its hint.
addEventListener("load", () => {
  for (const fold of document.querySelectorAll(".toggle-button")) fold.ariaLabel = fold.parentElement.innerText.trim();
  for (const copy of document.querySelectorAll(".copybtn")) copy.ariaLabel = copy.dataset.tooltip;
});
