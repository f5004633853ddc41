"use strict";
// A prediction comes before its answer: what a box "Predict" asks for shows when the reader has said what to expect, with
// the prediction repeated above it. What was predicted, and answered in quizzes, is kept for the next visit where the
// browser keeps anything. Without this script, and on paper, everything shows.

{ // names of its own: all scripts of a page share one scope
  // A browser may forbid to keep anything: then the next visit asks again.
  const place = `answers ${location.pathname}`;
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(place)) ?? {};
  } catch {} // as above
  function keep(key, value) {
    kept[key] = value;
    try {
      localStorage.setItem(place, JSON.stringify(kept));
    } catch {} // as above
  }

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

  const forms = [];
  document.querySelectorAll(".admonition.predict").forEach((box, number) => {
    const answer = answerOf(box);
    if (!answer.length) return;
    const form = document.createElement("form");
    form.className = "prediction";
    form.innerHTML = '<input autocomplete="off"><button type="submit"></button><button type="button"></button>';
    const [field, commit, skip] = form.children;
    field.placeholder = say("Your prediction");
    field.setAttribute("aria-label", say("Your prediction"));
    [commit.textContent, skip.textContent] = [say("Compare"), say("Show the answer")];
    forms.push(number);

    // The line above the answer, which takes the focus when the reader has asked for it.
    function open(text) {
      answer.forEach((element) => element.classList.remove("unanswered"));
      const said = document.createElement("p");
      said.className = "predicted";
      said.tabIndex = -1;
      said.textContent = text ? say("Your prediction: {text}").replace("{text}", () => text) : say("The answer");
      answer[0].before(said);
      form.remove();
      globalThis.removeEventListener("hashchange", follow);
      return said;
    }
    // A link leads to something in the answer.
    function follow() {
      const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (target && answer.some((element) => element.contains(target))) {
        open("");
        target.scrollIntoView();
      }
    }
    function compare(text) {
      keep(number, text);
      const said = open(text);
      said.focus({ preventScroll: true });
      // Where the answer begins in view, nothing moves; where question and answer fit together, both are seen.
      const [question, answered] = [box, said].map((element) => element.getBoundingClientRect().top);
      if (answered < 80 || answered > 0.7 * innerHeight) (answered - question < innerHeight / 2 ? box : said).scrollIntoView();
      count();
    }

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim()) compare(field.value.trim());
      else field.focus();
    });
    skip.addEventListener("click", () => compare(""));
    box.append(form);
    answer.forEach((element) => element.classList.add("unanswered"));
    globalThis.addEventListener("hashchange", follow);
    if (number in kept) open(kept[number]);
    else follow();
  });

  // How many predictions were made, at the chapter's end, and a way to make them anew.
  const total = document.createElement("p");
  total.className = "kept-answers";
  total.innerHTML = '<span></span> <button type="button"></button>';
  total.lastChild.textContent = say("Clear my predictions and quiz answers");
  function count() {
    const made = forms.filter((number) => kept[number]).length;
    const text = say("{made} of {all} predicted").replace("{made}", made).replace("{all}", forms.length);
    total.firstChild.textContent = made ? text : "";
    total.lastChild.hidden = !Object.keys(kept).length;
  }
  total.lastChild.addEventListener("click", () => {
    try {
      localStorage.removeItem(place);
      sessionStorage.setItem("cleared", place);
    } catch {} // as above
    location.reload();
  });

  // The widgets' own scripts have run when the page is complete; each of a quiz's forms is a question.
  addEventListener("DOMContentLoaded", () => {
    const quizzes = [...document.querySelectorAll(".attn-quiz")];
    const key = (quiz) => `quiz ${quizzes.indexOf(quiz)}`;
    for (const quiz of quizzes) {
      const questions = quiz.querySelectorAll("form");
      for (const [question, choice] of Object.entries(kept[key(quiz)] ?? {})) {
        questions[question]?.querySelectorAll("input")[choice]?.click();
        questions[question]?.requestSubmit();
      }
      quiz.addEventListener("submit", ({ target }) => {
        const at = [...quiz.querySelectorAll("form")].indexOf(target);
        const choice = [...target.querySelectorAll("input")].findIndex((input) => input.checked);
        if (choice >= 0) keep(key(quiz), { ...kept[key(quiz)], [at]: choice });
        count();
      });
      quiz.addEventListener("click", () => {
        if (!quiz.querySelector("[data-answered]") && kept[key(quiz)]) keep(key(quiz), {}); // started again
      });
    }
    if (!forms.length && !quizzes.length) return;
    document.querySelector("article > section")?.append(total);
    count();
    try {
      if (sessionStorage.getItem("cleared") !== place) return;
      sessionStorage.removeItem("cleared");
      total.firstChild.textContent = say("Your predictions and answers are cleared.");
      total.tabIndex = -1;
      total.focus();
    } catch {} // as above
  });
}
