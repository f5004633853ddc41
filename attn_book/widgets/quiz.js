// Questions with options: the reader chooses one and commits, and only then sees which is right, and why.

const TEXT = {
  title: say("Quiz"),
  commit: say("Commit"),
  committed: say("Committed"),
  right: say("Right."),
  wrong: say("Wrong."),
  rightOption: say("The right option:"),
  yours: say("your choice, right"),
  mistaken: say("your choice, wrong"),
  other: say("right"),
  status: (answered, all, right) => say("{answered} of {all} answered, {right} right.", { answered, all, right }),
  again: say("Start again"),
};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// What the quiz was given, in the page's words. Between backticks is code; all else is text, whatever it looks like.
const written = (text) => say(text).split(/`([^`]+)`/).map((part, i) => (i % 2 ? make("code", {}, part) : part));

function render({ model, el }) {
  const questions = model.get("questions");
  const stop = new AbortController();
  const listen = (thing, event, handler) => thing.addEventListener(event, handler, { signal: stop.signal });
  const print = matchMedia("print");

  // A form for each question, so that its radio buttons, also those of a copy on the page, are a group of their own.
  function ask({ question, options }, number) {
    const inputs = options.map((_, i) => make("input", { type: "radio", name: "choice", value: i }));
    const texts = options.map(({ text }) => make("span", { class: "attn-text" }, ...written(text)));
    const rows = inputs.map((input, i) => make("label", { class: "attn-option" }, input, texts[i]));
    const commit = make("button", { class: "attn-button", "aria-disabled": true }, TEXT.commit);
    const verdict = make("div", { class: "attn-verdict", role: "status" });
    const legend = make("legend", {}, `${number}. `, ...written(question));
    const form = make("form", {}, make("fieldset", {}, legend, ...rows, commit), verdict);
    const mark = (i, word) => texts[i].append(" ", make("span", { class: "attn-tag" }, word));
    const line = (word, text) => make("p", {}, make("strong", {}, word), " ", ...written(text));

    listen(form, "change", () => {
      commit.setAttribute("aria-disabled", false);
      commit.classList.add("attn-main");
    });
    listen(form, "submit", (event) => {
      event.preventDefault();
      const chosen = inputs.findIndex((input) => input.checked);
      if (chosen < 0 || form.dataset.answered) return;
      const right = options.findIndex((option) => option.right);
      form.dataset.answered = chosen === right ? "right" : "wrong";
      // What has the focus keeps it: the button stays, and so does the one choice that is left.
      inputs.forEach((input, i) => (input.disabled = i !== chosen));
      commit.setAttribute("aria-disabled", true);
      commit.classList.remove("attn-main");
      commit.textContent = TEXT.committed;
      verdict.append(line(chosen === right ? TEXT.right : TEXT.wrong, options[chosen].why));
      mark(chosen, chosen === right ? TEXT.yours : TEXT.mistaken);
      if (chosen !== right) {
        mark(right, TEXT.other);
        verdict.append(line(TEXT.rightOption, options[right].text), make("p", {}, ...written(options[right].why)));
      }
      count();
    });
    return form;
  }

  const asked = make("div", { class: "attn-asked" });
  const status = make("output", { class: "attn-value", "aria-live": "polite" });
  const again = make("button", { type: "button", class: "attn-button" }, TEXT.again);
  const root = make(
    "div",
    { class: "attn-card attn-quiz tex2jax_ignore mathjax_ignore", role: "group", "aria-label": TEXT.title },
    asked,
    make("div", { class: "attn-bar" }, status, again),
  );

  function count() {
    const answered = asked.querySelectorAll("[data-answered]").length;
    const right = asked.querySelectorAll("[data-answered=right]").length;
    status.textContent = TEXT.status(answered, questions.length, right);
    again.hidden = answered < questions.length;
  }

  function start() {
    asked.replaceChildren(...questions.map((question, k) => ask(question, k + 1)));
    count();
  }

  listen(again, "click", () => {
    start();
    asked.querySelector("input").focus(); // the button is gone: its focus goes where the reader goes on
  });

  start();
  keepKeys(root, stop.signal);
  el.append(root);
  layOut(el, () => (root.dataset.theme = print.matches ? "light" : themeOf(el)), stop.signal);
  return () => {
    stop.abort();
    root.remove();
  };
}

export default { render };
