"""The lexer: split CEL source into identifiers, numbers, strings and signs.

Source  cel-go: parser/gen/CEL.g4, parser/unescape.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from moorage.api.cel.bounds import SourceError

__all__ = ["Token", "scan", "unquoted"]


class Token(NamedTuple):
    """``kind`` is int, uint, float, string, bytes, word or end, or the sign or keyword itself."""

    kind: str
    text: str
    at: int


_STRING: Final = r"""
    [rR]\"\"\"(?:.|\n)*?\"\"\" | [rR]'''(?:.|\n)*?''' | [rR]"[^"\n\r]*" | [rR]'[^'\n\r]*'
  | \"\"\"(?:\\(?:.|\n)|[^\\])*?\"\"\" | '''(?:\\(?:.|\n)|[^\\])*?'''
  | "(?:\\[^\n\r]|[^\\"\n\r])*" | '(?:\\[^\n\r]|[^\\'\n\r])*'
"""
_TOKEN = re.compile(
    rf"""
    (?P<space>[\t\ \r\n\f]+ | //[^\n]*)
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)? | [0-9]+[eE][-+]?[0-9]+ | \.[0-9]+(?:[eE][-+]?[0-9]+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<bytes>[bB](?:{_STRING}))
  | (?P<string>{_STRING})
  | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset(["in", "true", "false", "null"])


def scan(source: str) -> Iterator[Token]:
    """Yield the tokens, the last one of kind ``end``.

    Raises  SourceError at the first character that starts no token
    """
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise SourceError(at, f"Syntax error: token recognition error at: '{source[at]}'")
        kind = found.lastgroup or ""
        text = found[0]
        if kind == "sign" or (kind == "word" and text in _KEYWORDS):
            kind = text
        if kind != "space":
            yield Token(kind, text, at)
        at = found.end()
    yield Token("end", "<EOF>", len(source))


# -- strings ------------------------------------------------------------------------------------------------------------

_SIMPLE: Final = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "`": 96, "?": 63,
}  # fmt: skip
_ESCAPE = re.compile(r"\\(?:([xX])([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|((?:.|\n)?))")


def unquoted(token: Token) -> str | bytes:
    """Return the value of a string or bytes token.

    Raises  SourceError for an invalid escape or code point
    """
    text = token.text
    as_bytes = token.kind == "bytes"
    if as_bytes:
        text = text[1:]
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quote = 3 if text[:3] in {'"""', "'''"} else 1
    body = text[quote:-quote]
    if raw or "\\" not in body:
        return body.encode() if as_bytes else body
    return _unescaped_bytes(body, token) if as_bytes else _ESCAPE.sub(lambda m: chr(_code_point(m, token)), body)


def _unescaped_bytes(body: str, token: Token) -> bytes:
    made = bytearray()
    end = 0
    for found in _ESCAPE.finditer(body):
        made += body[end : found.start()].encode()
        end = found.end()
        if found[3] or found[4]:
            raise SourceError(token.at, "unable to unescape string")
        made.append(_code_point(found, token))
    return bytes(made + body[end:].encode())


def _code_point(found: re.Match[str], token: Token) -> int:
    for group in (2, 3, 4):
        if found[group]:
            code = int(found[group], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise SourceError(token.at, f"invalid unicode code point: {code}")
            return code
    if found[5]:
        return int(found[5], 8)
    if found[6] not in _SIMPLE:
        raise SourceError(token.at, "unable to unescape string")
    return _SIMPLE[found[6]]
