// The theme gives two of its buttons inline handlers; the template article-header-buttons.html takes them off.
const presses = { "download-pdf": () => print(), fullscreen: () => toggleFullScreen() };
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
