// What the explorer of masked words says, and how it writes words and shares.

const TEXT = {
  title: "Predict the masked word",
  tally: (you, model, all) => `You: ${you} of ${all} right. The model: ${model} of ${all}.`,
  sentence: "sentence", layer: "layer", head: "head", mean: "mean",
  words: "The sentence: Enter hides a word, or shows it again",
  blank: "____",
  hiddenWord: (place, all) => `hidden word, ${place} of ${all}`,
  looked: (token, share) => `${token}, attention ${share}`,
  answer: (token, share) => `${token}, the hidden word, attention ${share}`,
  choose: "Choose a word to hide: click it, or walk along the sentence with the arrow keys and press Enter.",
  ask: "Which word is hidden? Guess first; then you see what the model says, and where it looks.",
  both: (word) => `The hidden word is “${word}”. You and the model are both right.`,
  you: (word, best) => `The hidden word is “${word}”. You are right; the model says “${best}”.`,
  model: (word, best, guess) => `The hidden word is “${word}”. The model is right; you say “${guess}”.`,
  neither: (word, best, guess) =>
    `The hidden word is “${word}”. Neither is right: you say “${guess}”, the model “${best}”.`,
  modelAlone: (word) => `The hidden word is “${word}”. The model is right.`,
  modelWrong: (word, best) => `The hidden word is “${word}”. The model says “${best}”.`,
  guess: "Your guess", say: "Guess", options: "or one of these:", reveal: "Show without guessing",
  candidates: "What the model says, with its probability",
  truth: "true word", yours: "your guess", rank: (rank) => `rank ${rank}`,
  outside: (guess, count) => `“${guess}” is not among the model’s first ${count}.`,
  next: "Next word", again: "Start over",
  all: "mean of all heads", layerMean: (layer) => `layer ${layer}, mean of its heads`,
  one: (layer, head) => `layer ${layer}, head ${head}`,
  looks: (whose, most) =>
    `Attention from the blank, ${whose}: most to ${most}. The darker a word and the longer its line, the more.`,
  most: (token, share) => `“${token}” (${share})`,
};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function shown(token) {
  const letters = [...token.replace(/\p{C}/gu, " ")];
  if (!letters.join("").trim()) return "␣";
  return letters.length > 24 ? letters.slice(0, 23).join("") + "…" : letters.join("");
}

function percent(share) {
  if (share > 0 && share < 0.005) return "<1\u00a0%";
  return share >= 0.995 && share < 1 ? ">99\u00a0%" : `${Math.round(100 * share)}\u00a0%`;
}

const plain = (word) => word.normalize("NFC").trim().toLowerCase();

