// Questions with options: the reader chooses one and commits, and only then sees which is right, and why.

const TEXT = {
  title: say("Quiz"),
  commit: say("Commit"),
  committed: say("Committed"),
  choose: say("Choose an answer first."),
  right: say("Right."),
  wrong: say("Wrong."),
  rightOption: say("The right option:"),
  yours: say("your choice, right"),
  mistaken: say("your choice, wrong"),
  other: say("right"),
  status: (answered, all, right) => say("{answered} of {all} answered, {right} right.", { answered, all, right }),
  again: say("Start again"),
};

// The page's section with this title.
const section = (title) =>
  [...document.querySelectorAll("article section")].find(({ firstElementChild: heading }) =>
    [...(heading?.childNodes ?? [])].some((node) => node.nodeType === 3 && node.data.trim() === title));

// What the quiz was given, in the page's words. Between backticks is code, and the title of a section of the page leads
// there; all else is text, whatever it looks like.
const written = (text) =>
  say(text).split(/(`[^`]+`|“[^”`]+”)/).map((part, i) => {
    if (i % 2 && part[0] === "`") return make("code", {}, part.slice(1, -1));
    const place = i % 2 && section(part.slice(1, -1));
    return place ? make("a", { href: `#${place.id}` }, part) : part;
  });

function draw({ model, listen }) {
  const questions = model.get("questions");

  // A form for each question, so that its radio buttons, also those of a copy on the page, are a group of their own.
  function ask({ question, options }, number) {
    const inputs = options.map((_, i) => make("input", { type: "radio", name: "choice", value: i }));
    const texts = options.map(({ text }) => span("text", ...written(text)));
    const rows = inputs.map((input, i) => make("label", { class: "attn-option" }, input, texts[i]));
    const commit = make("button", { class: "attn-button", "aria-disabled": true }, TEXT.commit);
    const verdict = make("div", { class: "attn-verdict", role: "status" });
    const legend = make("legend", {}, `${number}. `, ...written(question));
    const form = make("form", {}, make("fieldset", {}, legend, ...rows, commit), verdict);
    const mark = (i, word) => texts[i].append(" ", span("tag", word));
    const line = (word, text) => make("p", {}, make("strong", {}, word), " ", ...written(text));

    listen(form, "change", () => {
      commit.setAttribute("aria-disabled", false);
      verdict.replaceChildren();
      commit.classList.add("attn-main");
    });
    listen(form, "submit", (event) => {
      event.preventDefault();
      const chosen = inputs.findIndex((input) => input.checked);
      if (form.dataset.answered) return;
      if (chosen < 0) return verdict.replaceChildren(TEXT.choose);
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

  const asked = part("asked");
  const status = make("output", { class: "attn-value", "aria-live": "polite" });
  const again = make("button", { type: "button", class: "attn-button" }, TEXT.again);
  const root = card("quiz", TEXT.title, asked, part("bar", status, again));

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

  return { root, update: start };
}

export default { render: mount(draw) };
