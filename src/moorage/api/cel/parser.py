"""The parser: build the syntax tree of an expression from its tokens, and expand macros.

Precedence, loosest first: ``?:``, ``||``, ``&&``, relations, ``+ -``, ``* / %``, unary ``!`` and ``-``, paths and calls.
The size of an expression and the depth of its nesting are limited.

Source  cel-go: parser/gen/CEL.g4, parser/parser.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from moorage.api.cel.bounds import SourceError
from moorage.api.cel.macros import expand
from moorage.api.cel.syntax import CallNode, Expr, Ident, ListExpr, Literal, MapEntry, MapExpr, Message, Select, children
from moorage.api.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

# The lexer: split CEL source into identifiers, numbers, strings and signs.
#
# Source  cel-go: parser/gen/CEL.g4, parser/unescape.go


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


#: cel-go's limit on the size of an expression.
MAX_CODE_POINTS: Final = 100_000
#: How deep expressions may nest, and how high their trees may grow. cel-go allows 250; real expressions need a tenth of that,
#: and Python's stack is smaller than Go's. Chains of ``&&`` and ``||`` may have any length.
MAX_DEPTH: Final = 64
MAX_HEIGHT: Final = 120

#: Words that no variable can have as its name; fields can.
RESERVED: Final = frozenset(
    ["as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace",
     "return", "var", "void", "while"]
)  # fmt: skip
_LEVELS: Final = (
    {"||": "_||_"},
    {"&&": "_&&_"},
    {"<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in"},
    {"+": "_+_", "-": "_-_"},
    {"*": "_*_", "/": "_/_", "%": "_%_"},
)
#: The tokens of the grammar in its order, with the names that errors use.
_SHOWN: Final = {
    **{sign: f"'{sign}'" for sign in ("[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "true", "false", "null")},
    "float": "NUM_FLOAT", "int": "NUM_INT", "uint": "NUM_UINT", "string": "STRING", "bytes": "BYTES", "word": "IDENTIFIER",
}  # fmt: skip
#: The kinds of tokens that an expression begins with.
_STARTS: Final = frozenset(_SHOWN) - frozenset("]}),?:")


#: What may follow the brace of a message.
_FIELDS: Final = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"


def parse(source: str, without: frozenset[str] = frozenset(), structs: frozenset[str] = frozenset()) -> Expr:
    """Parse an expression. ``without``: macros that are not expanded. ``structs``: the first names of types whose values are
    maps: ``Object.spec{replicas: 1}`` is ``{"replicas": 1}``.

    Raises  SourceError at the first fault
    """
    if len(source) > MAX_CODE_POINTS:
        raise SourceError(-1, f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_CODE_POINTS}")
    parser = _Parser(list(scan(source)), without, structs)
    tree = parser.expression()
    parser.expect("end", "<EOF>")
    if _height_exceeds(tree, MAX_HEIGHT):
        raise SourceError(-1, f"expression recursion limit exceeded: {MAX_HEIGHT}")
    return tree


class _Parser:
    def __init__(self, tokens: list[Token], without: frozenset[str], structs: frozenset[str]) -> None:
        self._tokens = tokens
        self._without = without
        self._structs = structs
        self._next = 0
        self._depth = 0

    def _expanded(self, call: CallNode) -> Expr:
        return call if call.function in self._without else expand(call)

    # -- tokens -----------------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _take_if(self, kind: str) -> Token | None:
        return self._take() if self._token.kind == kind else None

    def expect(self, kind: str, shown: str = "", *, also: str = "") -> Token:
        """Consume a token of the given kind. ``also``: what may stand there as well, for the error."""
        token = self._token
        if token.kind == kind:
            return self._take()
        # ANTLR drops a token if the next one is the right one, and adds the right one if the token may follow it.
        may_follow = token.kind in _STARTS if kind == ":" else kind in ")]}" and token.kind == "end" and self._depth == 1
        if not also and may_follow and self._following != kind:
            raise SourceError(token.at, f"Syntax error: missing '{kind}' at '{token.text}'")
        raise self._misfit(frozenset((kind, *also)), shown)

    @property
    def _following(self) -> str:
        """The kind of the token after the next one."""
        return self._tokens[self._next + 1].kind if self._token.kind != "end" else ""

    def _misfit(self, kinds: frozenset[str], shown: str = "") -> SourceError:
        """Return the error of a token that is of none of some kinds."""
        token, names = self._token, [text for kind, text in _SHOWN.items() if kind in kinds]
        what = "extraneous" if self._following in kinds else "mismatched"
        expected = shown or (names[0] if len(names) == 1 else f"{{{', '.join(names)}}}")
        return SourceError(token.at, f"Syntax error: {what} input '{token.text}' expecting {expected}")

    def _check_start(self, also: str = "") -> None:
        """Check that an expression begins here, or one of some other signs."""
        if self._token.kind not in _STARTS and self._token.kind not in also:
            raise self._misfit(_STARTS.union(also))

    def _selected(self) -> Token:
        """Consume the name after a dot."""
        token = self._token
        if token.kind in {"true", "false", "null"}:
            raise self._misfit(frozenset({"word"}))
        if token.kind != "word":
            text = "" if token.kind == "end" else token.text
            raise SourceError(token.at, f"Syntax error: no viable alternative at input '.{text}'")
        return self._take()

    # -- operators --------------------------------------------------------------------------------------------------------

    def expression(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SourceError(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")
        tree = self._binary(0)
        mark = self._take_if("?")
        if mark is not None:
            yes = self._binary(0)
            self.expect(":")
            tree = CallNode(mark.at, "_?_:_", [tree, yes, self.expression()])
        self._depth -= 1
        return tree

    def _binary(self, level: int) -> Expr:
        """Parse operators of at least the given precedence with an operator stack, so that long chains need no recursion."""
        operands = [self._unary()]
        waiting: list[tuple[int, str, int]] = []
        while (found := self._operator(level)) is not None:
            while waiting and waiting[-1][0] >= found[0]:
                _reduce(operands, waiting)
            waiting.append(found)
            operands.append(self._unary())
        while waiting:
            _reduce(operands, waiting)
        return operands[0]

    def _operator(self, least: int) -> tuple[int, str, int] | None:
        token = self._token
        for level in range(least, len(_LEVELS)):
            name = _LEVELS[level].get(token.kind)
            if name is not None:
                self._take()
                return level, name, token.at
        return None

    def _unary(self) -> Expr:
        first = self._token
        if first.kind == "!":
            return self._repeated("!", "!_")
        if first.kind == "-":
            follows = self._tokens[self._next + 1].kind
            if follows in {"int", "float"}:
                self._take()
                return self._members(self._number("-", first.at))
            return self._repeated("-", "-_")
        return self._members(self._primary())

    def _repeated(self, sign: str, function: str) -> Expr:
        """Parse repeated ``!`` or ``-``; pairs of them cancel out."""
        at, count = self._token.at, 0
        while self._take_if(sign):
            count += 1
        operand = self._members(self._primary())
        return CallNode(at, function, [operand]) if count % 2 else operand

    # -- members ----------------------------------------------------------------------------------------------------------

    def _members(self, tree: Expr) -> Expr:
        while self._token.kind in {".", "["}:
            op = self._take()
            optional = self._take_if("?") is not None
            if op.kind == "[":
                if not optional:
                    self._check_start("?")
                index = self.expression()
                self.expect("]")
                tree = CallNode(op.at, "_[?_]" if optional else "_[_]", [tree, index])
                continue
            name = self.expect("word", "{IDENTIFIER, ESC_IDENTIFIER}") if optional else self._selected()
            if optional:
                tree = CallNode(op.at, "_?._", [tree, Literal(name.at, name.text)])
            elif (open_ := self._take_if("(")) is not None:
                tree = self._expanded(CallNode(open_.at, name.text, self._arguments(), tree))
            else:
                tree = Select(op.at, tree, name.text)
        return tree

    def _arguments(self) -> list[Expr]:
        args: list[Expr] = []
        if self._take_if(")"):
            return args
        self._check_start(")")
        while True:
            args.append(self.expression())
            if not self._take_if(","):
                self.expect(")")
                return args

    # -- primaries --------------------------------------------------------------------------------------------------------

    def _primary(self) -> Expr:
        token = self._token
        match token.kind:
            case "word" | ".":
                return self._identifier()
            case "(":
                self._take()
                tree = self.expression()
                self.expect(")")
                return tree
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "true" | "false" | "null":
                self._take()
                return Literal(token.at, {"true": True, "false": False, "null": None}[token.kind])
            case "int" | "float":
                return self._number("", token.at)
            case "uint":
                return self._uint()
            case "string" | "bytes":
                return Literal(token.at, unquoted(self._take()))
        raise self._misfit(_STARTS)

    def _identifier(self) -> Expr:
        dot = "." if self._take_if(".") else ""
        token = self._selected() if dot else self._take()
        if token.text in RESERVED:
            raise SourceError(token.at, f"reserved identifier: {token.text}")
        open_ = self._take_if("(")
        if open_ is not None:
            return self._expanded(CallNode(open_.at, dot + token.text, self._arguments()))
        if self._begins_message():
            return self._message(dot + token.text)
        return Ident(token.at, dot + token.text)

    def _begins_message(self) -> bool:
        """Return whether the next tokens are the rest of a dotted name and an opening brace: ``.b.C {``."""
        at = self._next
        while self._tokens[at].kind == "." and self._tokens[at + 1].kind == "word":
            at += 2
        return self._tokens[at].kind == "{"

    def _message(self, name: str) -> Expr:
        while self._take_if("."):
            name += "." + self._take().text
        brace = self.expect("{")
        is_struct = name.partition(".")[0] in self._structs
        entries: list[MapEntry] = []
        while not self._take_if("}"):
            optional = self._take_if("?") is not None
            field = self.expect("word", _FIELDS if not entries and not optional else "IDENTIFIER")
            colon = self.expect(":")
            key = Literal(field.at, field.text)
            value = self.expression()
            if is_struct and not optional:  # fields have types of their own, entries of one map have one
                value = CallNode(field.at, "dyn", [value])
            entries.append(MapEntry(colon.at, key, value, optional))
            if not self._take_if(","):
                self.expect("}", also=",")
                break
        if is_struct:
            return MapExpr(brace.at, entries, name)
        return Message(brace.at, name, [entry.value for entry in entries])

    def _list(self) -> Expr:
        at = self._take().at
        elements: list[Expr] = []
        optional: set[int] = set()
        self._check_start("]?,")
        while not self._ends("]", is_empty=not elements):
            if self._take_if("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if not self._take_if(","):
                self.expect("]", also=",")
                break
        return ListExpr(at, elements, frozenset(optional))

    def _map(self) -> Expr:
        at = self._take().at
        entries: list[MapEntry] = []
        self._check_start("}?,")
        while not self._ends("}", is_empty=not entries):
            optional = self._take_if("?") is not None
            key = self.expression()
            colon = self.expect(":")
            entries.append(MapEntry(colon.at, key, self.expression(), optional))
            if not self._take_if(","):
                self.expect("}", also=",")
                break
        return MapExpr(at, entries)

    def _ends(self, sign: str, *, is_empty: bool) -> bool:
        """Consume the sign that ends a list or map, if it ends here. ``[,]`` is an empty list; after a comma it must end, or go
        on with an expression.
        """
        if is_empty and not self._take_if(","):
            return self._take_if(sign) is not None
        if not is_empty and (self._token.kind in _STARTS or self._token.kind == "?"):
            return False
        self.expect(sign)
        return True

    def _number(self, sign: str, at: int) -> Expr:
        token = self._take()
        if token.kind == "float":
            number = float(sign + token.text)
            if number in {float("inf"), float("-inf")}:
                raise SourceError(at, "invalid double literal")
            return Literal(at, number)
        number = _integer(sign + token.text)
        if not INT_MIN <= number <= INT_MAX:
            raise SourceError(at, "invalid int literal")
        return Literal(at, number)

    def _uint(self) -> Expr:
        token = self._take()
        number = _integer(token.text[:-1])
        if number > UINT_MAX:
            raise SourceError(token.at, "invalid uint literal")
        return Literal(token.at, UInt(number))


def _integer(text: str) -> int:
    """Return an integer; one of over 100 digits is truncated to 100, which still exceeds every integer type."""
    if "x" in text:
        return int(text, 16)
    return int(text) if len(text) < 100 else int(text[:100])


def _reduce(operands: list[Expr], waiting: list[tuple[int, str, int]]) -> None:
    """Combine the last two operands into a node; ``&&`` and ``||`` in a row become one node with many operands."""
    _, name, at = waiting.pop()
    right = operands.pop()
    left = operands[-1]
    if name in {"_&&_", "_||_"} and isinstance(left, CallNode) and left.function == name:
        left.args.append(right)
    else:
        operands[-1] = CallNode(at, name, [left, right])


def _height_exceeds(root: Expr, limit: int) -> bool:
    level: list[Expr] = [root]
    for _ in range(limit):
        level = [child for node in level for child in children(node)]
        if not level:
            return False
    return True
