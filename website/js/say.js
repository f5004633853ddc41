// What is said in English goes through here; a translated book brings its words in a plain object.
const say = (text) => globalThis.attentionBookWords?.[text] ?? text;
