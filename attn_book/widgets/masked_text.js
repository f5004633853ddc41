// What the explorer of masked words says, and how it writes words and shares.

const TEXT = {
  title: say("Predict the masked word"),
  tally: (you, model, all) => say("You: {you} of {all} right. The model: {model} of {all}.", { you, model, all }),
  sentence: say("sentence"), layer: say("layer"), head: say("head"), mean: say("mean"),
  words: say("The sentence: Enter hides a word, or shows it again"),
  blank: "____",
  hiddenWord: (place, all) => say("hidden word, {place} of {all}", { place, all }),
  looked: (token, share) => say("{token}, attention {share}", { token, share }),
  answer: (token, share) => say("{token}, the hidden word, attention {share}", { token, share }),
  choose: say("Choose a word to hide: click it, or move along the sentence with the arrow keys and press Enter."),
  ask: say("Which word is hidden? Guess first; then you see what the model predicts, and where it attends."),
  both: (word) => say("The hidden word is “{word}”. You and the model are both right.", { word }),
  you: (word, best) => say("The hidden word is “{word}”. You are right; the model says “{best}”.", { word, best }),
  model: (word, best, guess) =>
    say("The hidden word is “{word}”. The model is right; you say “{guess}”.", { word, guess }),
  neither: (word, best, guess) => {
    const words = { word, best, guess };
    return say("The hidden word is “{word}”. Neither is right: you say “{guess}”, the model “{best}”.", words);
  },
  modelAlone: (word) => say("The hidden word is “{word}”. The model is right.", { word }),
  modelWrong: (word, best) => say("The hidden word is “{word}”. The model says “{best}”.", { word, best }),
  guess: say("Your guess"), send: say("Guess"), options: say("or one of these:"), reveal: say("Show without guessing"),
  candidates: say("What the model predicts, with its probabilities"),
  truth: say("true word"), yours: say("your guess"), rank: (rank) => say("rank {rank}", { rank }),
  outside: (guess, count) => say("“{guess}” is not among the model’s first {count}.", { guess, count }),
  next: say("Next word"), again: say("Start over"),
  all: (most) => say("Attention from the blank, mean of all heads: most to {most}.", { most }),
  layerMean: (most, layer) =>
    say("Attention from the blank, layer {layer}, mean of its heads: most to {most}.", { layer, most }),
  one: (most, layer, head) =>
    say("Attention from the blank, layer {layer}, head {head}: most to {most}.", { layer, head, most }),
  darker: say("A more strongly coloured word and a longer line mean more attention."),
  most: (token, share) => say("“{token}” ({share})", { token, share }),
};

const plain = (word) => word.normalize("NFC").trim().toLowerCase();

