// What the translator says, how it writes numbers, and how a sentence becomes words.

const TEXT = {
  title: say("A translator that runs in this page"),
  kinds: { bahdanau: say("recurrent, with Bahdanau’s attention"), transformer: say("Transformer") },
  sentence: say("Sentence"), translate: say("Translate"), step: say("Next word"), samples: say("or try"),
  suggestions: say("Words that begin like this"),
  unknown: (words, count) => {
    const values = { words: words.map((word) => say("“{word}”", { word })).join(", "), count };
    return words.length > 1
      ? say("{words} are not among the {count} words that this model knows.", values)
      : say("{words} is not among the {count} words that this model knows.", values);
  },
  earlier: (sentence) => say("Below: the translation of “{sentence}”.", { sentence }),
  translation: say("The translation: Enter shows what else the model considered"),
  word: (word, share, tags) => [word, share, ...tags].join(", "),
  forced: say("forced"),
  spoken: (words) => say("Translation: {words}", { words }),
  alternatives: (word) =>
    say("The model’s most likely words instead of “{word}”. Choose one to continue from there:", { word }),
  alternative: (word, share) => `${word}, ${share}`,
  undo: say("Undo forced words"),
  took: (count, ms) => {
    if (ms < 1) {
      return count === 1 ? say("1 word in less than 1\u00a0ms.") : say("{count} words in less than 1\u00a0ms.", { count });
    }
    const values = { count, ms: Math.round(ms) };
    return count === 1 ? say("1 word in {ms}\u00a0ms.", values) : say("{count} words in {ms}\u00a0ms.", values);
  },
  likely: (mean) => say("Log-probability, mean of its tokens (<eos> counted): {mean}.", { mean }),
  cut: (count) => say("Cut off after {count} words: no <eos> came.", { count }),
  map: say("Attention: a row for each word of the translation, a column for each word of the sentence"),
  across: say("sentence →"), down: say("translation ↓"),
  hint: say(
    "Point at a cell to read its weight; choose a word to replace it. A longer line means that the model is more certain.",
  ),
  reads: (word, weights) => `${word} → ${weights}`,
  looked: (word, weight) => `${word} ${weight}`,
  greatest: (weight) => say("{weight} attention weight", { weight }),
  heads: say("Heads: which map is shown, and which heads are switched on"),
  all: say("mean of all"), mean: say("mean of those on"), on: say("on"), off: say("off"),
  show: (name) => say("show {name}", { name }), use: (name) => say("{name} on", { name }),
  beam: say("beam size"), temperature: say("temperature"), none: say("off"), again: say("Sample again"),
  more: say("More: search, temperature, probability"),
  drawing: (seed) => say("Each word is sampled at random (sample {seed}).", { seed }),
  search: (size) => say("Beam search keeps the {size} most likely beginnings.", { size }),
  likeliest: say("Each word is the most likely one."),
  either: say("Beam search and sampling cannot be combined."),
  widened: say("The temperature is off again: beam search and sampling cannot be combined."),
  drawn: say("The beam size is 1 again: beam search and sampling cannot be combined."),
};

// Sentences to try are in the model's language, and stay in it. The recurrent model translates the first; it needs a beam for
// the second, and has never learned what "it" stands for in the third.
const SAMPLES = [
  "does the queen often read these letters ?",
  "is the basket that this lazy man buys blue ?",
  "the owl drank the soup because it was hot .",
];

// As attn_book.data.tokens; what is a letter is said in full, because \w and \b of JavaScript are ASCII's.
const LETTER = "[\\p{L}\\p{N}_]";
const TOKEN = new RegExp(
  `n't(?!${LETTER})|'(?:s|m|d|re|ve|ll)(?!${LETTER})|\\p{Nd}+(?:[.,:]\\p{Nd}+)+` +
    `|${LETTER}+(?:-${LETTER}+)*(?:(?:(?<=(?<!${LETTER})[cdjlmnst])|(?<=qu))'(?=\\s*${LETTER})` +
    `|(?:'(?!(?:s|m|d|re|ve|ll)(?!${LETTER}))${LETTER}+(?:-${LETTER}+)*)*)` +
    `|\\.{2,}|[^\\p{L}\\p{N}_\\s]`,
  "gu",
);

function tokenize(text) {
  const plain = text.toLowerCase().replace(/[’‘]/g, "'").replace(/[\u00ad\u200b\ufeff]/g, "").replaceAll("n't", " n't");
  return plain.normalize("NFC").match(TOKEN) ?? [];
}

// As read_words in translator.py: a piece between spaces that the model knows is a word as it stands.
function readWords(text, knows) {
  const pieces = text.split(/\s+/u).filter(Boolean);
  const words = pieces.flatMap((piece) => (knows(piece) ? [piece] : tokenize(piece)));
  return words.map((word) => (word === "n't" && !knows(word) ? "not" : word));
}

// A number from 0 to 1 for each step of each draw: the same words before leave the same draw after them.
function chance(seed, step) {
  let bits = Math.imul(seed, 0x9e3779b1) ^ Math.imul(step + 1, 0x85ebca6b);
  for (const by of [0x7feb352d, 0x846ca68b]) bits = Math.imul(bits ^ (bits >>> 16), by);
  return ((bits ^ (bits >>> 15)) >>> 0) / 2 ** 32;
}

// Draws a token: probabilities sharpened by a temperature below 1, evened out by one above it.
function drawing(temperature, seed) {
  return (probabilities, step) => {
    const shares = Array.from(probabilities, (p) => p ** (1 / temperature));
    let left = chance(seed, step) * shares.reduce((sum, share) => sum + share, 0);
    const id = shares.findIndex((share) => (left -= share) < 0);
    return id < 0 ? shares.indexOf(Math.max(...shares)) : id; // rounded sums may leave a little
  };
}

