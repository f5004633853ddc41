// The search quotes pages as text, in which a formula would be its TeX: three dots stand for it.
const quoted = Search.htmlToText;
Search.htmlToText = (html, anchor) => quoted(html.replace(/\\\([^]*?\\\)|\\\[[^]*?\\\]/g, "…"), anchor);
