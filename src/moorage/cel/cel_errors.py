"""What can go wrong with an expression: before it runs, while it runs, and when it would run too long."""

from __future__ import annotations

from moorage.errors import InputError

__all__ = ["CelError", "CompileError", "CostLimitError", "EvalError", "SourceError", "located"]


class CelError(InputError):
    """An expression that cannot be compiled, or that has no value. The text is cel-go's own, with its line breaks."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class CompileError(CelError):
    """The expression makes no sense; the text shows where, as cel-go prints it."""


class EvalError(CelError):
    """The expression has no value for this device. ``&&``, ``||`` and quantifiers may absorb it, as CEL has it."""


class CostLimitError(CelError):
    """The expression was stopped because it costs too much. Nothing absorbs this."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class SourceError(Exception):
    """A fault at one place of the source, on its way to becoming part of a ``CompileError``."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at
        self.text = text


def located(source: str, at: int, text: str) -> str:
    """Return a fault with its line and column, and the line with a mark below the place.

    ``at`` counts code points; a negative one stands for no place.
    """
    if at < 0:
        return f"ERROR: <input>:-1:0: {text}"
    start = source.rfind("\n", 0, at) + 1
    line, column = source.count("\n", 0, at) + 1, at - start
    shown = source[start:].partition("\n")[0].replace("\t", " ")
    under = "".join("\uff0e" if len(char.encode()) > 1 else "." for char in shown[:column])
    mark = "\uff3e" if len(shown[column : column + 1].encode()) > 1 else "^"
    return f"ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}\n | {under}{mark}"
