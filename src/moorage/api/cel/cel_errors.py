"""The errors of an expression: at compilation, at evaluation, and at the cost limit."""

from __future__ import annotations

from moorage.errors import InputError

__all__ = ["CelError", "CompileError", "CostLimitError", "EvalError", "SourceError", "TooLargeError", "located"]


class CelError(InputError):
    """An expression cannot be compiled or has no value. The text is cel-go's own, with its line breaks."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class CompileError(CelError):
    """The expression is invalid; the text shows the position as cel-go prints it."""


class EvalError(CelError):
    """The expression has no value for this device. As CEL specifies, ``&&``, ``||`` and quantifiers may absorb the error."""


class TooLargeError(EvalError):
    """An operand or a result is larger than one operation may handle (``bounds``)."""


class CostLimitError(CelError):
    """The expression exceeded its cost limit. Nothing absorbs this error."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class SourceError(Exception):
    """A fault at one position of the source; the parser and the checker turn it into a ``CompileError``."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at
        self.text = text


def located(source: str, at: int, text: str) -> str:
    """Return a fault with its line and column, and the line with a mark below the position.

    ``at`` counts code points; a negative number means no position.
    """
    if at < 0:
        return f"ERROR: <input>:-1:0: {text}"
    start = source.rfind("\n", 0, at) + 1
    line, column = source.count("\n", 0, at) + 1, at - start
    shown = source[start:].partition("\n")[0].replace("\t", " ")
    under = "".join("\uff0e" if len(char.encode()) > 1 else "." for char in shown[:column])
    mark = "\uff3e" if len(shown[column : column + 1].encode()) > 1 else "^"
    return f"ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}\n | {under}{mark}"
