"use strict";
// On a narrow screen a drawing is shown whole, and in its own size when it is touched; and who touches does not point.

// The widgets' hints for a pointer, in the words for a finger. The widgets' scripts run after this one, and say.js,
// which has `say`, before.
if (matchMedia("(pointer: coarse)").matches) {
  const hints = {
    "Point at a cell or use the arrow keys; Enter keeps a row.": say("Tap a cell to read its weight."),
    "Point at a block or a request, or move through the blocks with the arrow keys.": say("Tap a block or a request."),
    "Point at a patch, or move over the patches with the arrow keys.": say("Tap a patch."),
    "A click or Enter makes it the query.": say("A tap makes it the query."),
    "Choose a word to hide: click it, or move along the sentence with the arrow keys and press Enter.":
      say("Tap a word to hide it."),
    "Point at a cell to read its weight; choose a word to replace it. A longer line means that the model is more certain.":
      say("Tap a cell to read its weight, or a word to replace it. A longer line means that the model is more certain."),
  };
  globalThis.attentionBookWords = { ...globalThis.attentionBookWords, ...hints };
}

// One dialog for all drawings, from which a touch, Escape and its button lead back.
{
  const enlarged = document.createElement("dialog");
  enlarged.className = "enlarged";
  enlarged.append(document.createElement("button"), document.createElement("div"));
  enlarged.firstChild.textContent = "×";
  enlarged.firstChild.setAttribute("aria-label", say("Close"));
  enlarged.setAttribute("aria-label", say("The drawing, enlarged"));
  enlarged.addEventListener("click", () => enlarged.close());
  document.querySelector("article")?.append(enlarged);

  // A drawing that is shown much smaller than it was drawn has a button below it.
  const shrunk = new ResizeObserver((seen) => {
    for (const { target } of seen) target.nextElementSibling.hidden = target.clientWidth > 0.85 * target.getAttribute("width");
  });
  for (const drawing of document.querySelectorAll("article :is(figure, .cell_output) img[width]")) {
    const button = document.createElement("button");
    button.className = "enlarge";
    button.type = "button";
    button.textContent = say("Enlarge");
    drawing.after(button);
    const show = () => {
      if (button.hidden) return;
      const copy = drawing.cloneNode();
      copy.removeAttribute("id");
      enlarged.lastChild.replaceChildren(copy);
      enlarged.showModal();
      fade(enlarged.lastChild); // as scrolling.js does
    };
    button.addEventListener("click", show);
    drawing.addEventListener("click", show);
    shrunk.observe(drawing);
  }
}
