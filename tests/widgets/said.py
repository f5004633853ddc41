"""What the widgets say, read from their JavaScript: by Babel, as a catalogue is made, and by a reader of our own."""

import io
import json
import re
from pathlib import Path
from typing import NamedTuple

from babel.messages.extract import extract

from attn_book import widgets

SCRIPTS = sorted(Path(widgets.__file__).parent.glob("*.js"))


def extracted(script):
    """The messages of a script, as Babel finds them."""
    found = extract("javascript", io.BytesIO(script.encode()), keywords={"say": None})
    return {message for _, message, _, _ in found}


def catalogue(translate):
    """All messages of all widgets, from English to what `translate` makes of them."""
    return {message: translate(message) for path in SCRIPTS for message in extracted(path.read_text(encoding="utf-8"))}


class Token(NamedTuple):
    """A piece of JavaScript. Of a template the text has `${}` for each substitution, whose own tokens follow it."""

    kind: str  # word, mark, string, template or regex
    text: str
    line: int


_SPACE = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[\w$]+")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'")
_REGEX = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_MARK = re.compile(r"=>|\.\.\.|.")


def tokens(script):
    """The tokens of a script, without its comments."""
    found, end = _read(script, 0)
    assert end == len(script), script[end : end + 80]
    return found


def _read(script, at):
    """The tokens from a place on to the end, or to a brace that closes what was opened before it."""
    found, depth = [], 0
    while at < len(script):
        line = script.count("\n", 0, at) + 1
        if match := _SPACE.match(script, at):
            at = match.end()
        elif script[at] == "`":
            inner, text, at = _template(script, at + 1)
            found += [Token("template", text, line), Token("mark", "(", line), *inner, Token("mark", ")", line)]
        elif match := _STRING.match(script, at):
            text = match[0]
            found.append(Token("string", json.loads(text) if text[0] == '"' else text[1:-1], line))
            at = match.end()
        elif match := _WORD.match(script, at):
            found.append(Token("word", match[0], line))
            at = match.end()
        elif script[at] == "/" and _begins_regex(found) and (match := _REGEX.match(script, at)):
            found.append(Token("regex", match[0], line))
            at = match.end()
        else:
            match = _MARK.match(script, at)
            depth += (match[0] == "{") - (match[0] == "}")
            if depth < 0:
                return found, at
            found.append(Token("mark", match[0], line))
            at = match.end()
    return found, at


def _template(script, at):
    inner, text = [], ""
    while script[at] != "`":
        if script.startswith("${", at):
            more, at = _read(script, at + 2)
            inner += [*more, Token("mark", ",", 0)]
            text += "${}"
        elif script[at] == "\\":
            text += script[at : at + 2]
            at += 1
        else:
            text += script[at]
        at += 1
    return inner, text, at + 1


def _begins_regex(before):
    if not before or before[-1].text == "return":
        return True
    return before[-1].kind == "mark" and before[-1].text not in (")", "]", "}")


def _opens(token):
    """1 for a bracket that opens, −1 for one that closes, else 0."""
    return token.kind == "mark" and (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))


def _after(read, k):
    """The place of the token after a literal, past what a template substitutes."""
    if read[k].kind == "string":
        return k + 1
    depth = 0
    for j in range(k + 1, len(read)):
        depth += _opens(read[j])
        if depth == 0:
            return j + 1
    raise AssertionError(read[k])


class Literal(NamedTuple):
    """A string or template: which argument it is of which call, after which tokens it comes, whether it is in TEXT."""

    text: str
    line: int
    call: str
    place: int
    before: tuple[str, ...]
    in_table: bool
    alone: bool  # the whole of its argument


def literals(script):
    """All strings and templates of a script, each with where it stands."""
    found, calls, table = [], [["", 0]], -1
    read = tokens(script)
    for k, token in enumerate(read):
        before = tuple(one.text for one in read[max(0, k - 3) : k])
        if before[-3:] == ("const", "TEXT", "="):
            table = len(calls)
        if token.kind in ("string", "template"):
            alone = before[-1:] in [("(",), (",",)] and read[_after(read, k)].text in (",", ")")
            call, place = calls[-1]
            found.append(Literal(token.text, token.line, call, place, before, table >= 0, alone))
        elif _opens(token) == 1:
            callee = read[k - 1].text if k and token.text == "(" and read[k - 1].kind == "word" else ""
            calls.append([callee, 0])
        elif _opens(token) == -1:
            calls.pop()
            table = -1 if len(calls) == table else table
        elif token.text == "," and token.kind == "mark":
            calls[-1][1] += 1
    assert len(calls) == 1
    return found


def say_calls(script):
    """The first argument of each call of `say`: a literal's text, or of anything else its tokens in a tuple."""
    read, found = tokens(script), []
    for k, token in enumerate(read[:-1]):
        if (token.kind, token.text) != ("word", "say") or read[k + 1].text != "(" or read[k - 1].text == "function":
            continue
        depth, argument = 0, []
        for one in read[k + 2 :]:
            depth += _opens(one)
            if depth < 0 or (depth == 0 and one.kind == "mark" and one.text == ","):
                break
            argument.append(one)
        # Behind a template come brackets of its own, empty where it substitutes nothing.
        plain = [one.kind for one in argument] in (["string"], ["template", "mark", "mark"])
        found.append(argument[0].text if plain else tuple(one.text for one in argument))
    return found
