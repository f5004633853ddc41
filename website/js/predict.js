// A prediction comes before its answer: what a box "Predict" asks for shows when the reader has said what to expect.
// Without this script, and on paper, everything shows.

// The outputs of the next cell that has some, and what follows up to the next section, cell of open code or box. A page
// ends an answer earlier by `:::{div} after-answer`, and adds to it what has the class `answer`. Nothing if a
// widget is among them: to try it out is a way to find the answer.
function answerOf(box) {
  const after = [];
  for (let next = box.nextElementSibling; next; next = next.nextElementSibling) after.push(next);
  const isEnd = (element) =>
    element.matches("section, .after-answer, .admonition:not(.answer)") ||
    (element.matches(".cell") && !element.querySelector("details.above-input"));
  const isFirst = (element) => element.matches("section, .admonition") || element.querySelector(".cell_output");
  const at = after.findIndex(isFirst);
  const [first, ...rest] = after.slice(at);
  if (!first?.matches(".cell")) return [];
  const told = after.slice(0, at).filter((element) => element.matches(".answer"));
  const end = rest.findIndex(isEnd);
  const answer = [...told, ...first.querySelectorAll(":scope > .cell_output"), ...rest.slice(0, end < 0 ? rest.length : end)];
  return answer.some((element) => element.querySelector(".attn-static")) ? [] : answer;
}

document.querySelectorAll(".admonition.predict").forEach((box, number) => {
  const answer = answerOf(box);
  if (!answer.length) return;
  const key = `prediction ${location.pathname} ${number}`;
  const form = document.createElement("form");
  form.className = "prediction";
  form.innerHTML = '<input autocomplete="off"><button type="submit"></button><button type="button"></button>';
  const [field, commit, skip] = form.children;
  field.placeholder = say("Your prediction");
  field.setAttribute("aria-label", say("Your prediction"));
  [commit.textContent, skip.textContent] = [say("Compare"), say("Show the answer")];

  function open(text) {
    answer.forEach((element) => element.classList.remove("unanswered"));
    const said = document.createElement("p");
    said.className = "predicted";
    said.textContent = text ? `${say("Your prediction")}: ${text}` : "";
    form.replaceWith(said);
    globalThis.removeEventListener("hashchange", follow);
  }
  // A link leads to something in the answer.
  function follow() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && answer.some((element) => element.contains(target))) {
      open("");
      target.scrollIntoView();
    }
  }
  function keep(text) {
    open(text);
    try {
      sessionStorage.setItem(key, text);
    } catch {} // a browser may forbid it: then the next visit asks again
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) keep(field.value.trim());
    else field.focus();
  });
  skip.addEventListener("click", () => keep(""));
  box.append(form);
  answer.forEach((element) => element.classList.add("unanswered"));
  globalThis.addEventListener("hashchange", follow);
  let before = null;
  try {
    before = sessionStorage.getItem(key);
  } catch {} // as above
  if (before === null) follow();
  else open(before);
});
