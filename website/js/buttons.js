// The theme gives two of its buttons inline handlers; the template article-header-buttons.html takes them off.
const presses = { "download-pdf": () => print(), fullscreen: () => toggleFullScreen() };
for (const [name, press] of Object.entries(presses)) {
  document.querySelector(`.btn-${name}-button`)?.addEventListener("click", press);
}
