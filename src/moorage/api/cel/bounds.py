"""The errors of an expression, and the bounds of one operation: how large its operands and its result may be.

An operation within them takes less than 100 ms and 50 MiB. The cost limit bounds their number. kube-apiserver has no such
bounds, but limits bodies to 3 MiB and charges each character and element, so that it accepts hardly more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Final

from moorage.errors import InputError

# The errors of an expression: at compilation, at evaluation, and at the cost limit.


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

    def __init__(self, of: str = "actual cost limit exceeded") -> None:
        super().__init__(f"operation cancelled: {of}")


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
    if not source:
        return f"ERROR: <input>:1:0: {text}"
    start = source.rfind("\n", 0, at) + 1
    line, column = source.count("\n", 0, at) + 1, at - start
    shown = source[start:].partition("\n")[0].replace("\t", " ")
    under = "".join("\uff0e" if len(char.encode()) > 1 else "." for char in shown[:column])
    mark = "\uff3e" if len(shown[column : column + 1].encode()) > 1 else "^"
    return f"ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}\n | {under}{mark}"


#: The longest text or bytes that an operation reads or builds.
MAX_TEXT: Final = 3 * 2**20
#: The longest list or map that an operation walks through or builds.
MAX_ITEMS: Final = 50_000
#: How many pairs of elements an operation compares, and how many parts of nested lists it reads.
MAX_WORK: Final = 100_000
#: The decimal digits of the mantissa of a quantity. Python prints 4,300.
MAX_DIGITS: Final = 4_000
#: The longest text that is parsed: a number, a version, a URL, a pattern.
MAX_PARSED: Final = 5_000
#: The steps of the program of a pattern.
MAX_PROGRAM: Final = 100_000
#: The steps of a search for a pattern at the most: the bytes of the text times the steps of the program.
MAX_STEPS: Final = 20_000_000
#: What a whole evaluation may do, in units of about 0.05 µs (``effort``).
MAX_EFFORT: Final = 1_500_000


def check_text(length: int) -> None:
    """Check the length of a text that is read or about to be built.

    Raises  TooLargeError
    """
    if length > MAX_TEXT:
        raise TooLargeError(f"a text of {length} characters is too long; an operation takes at most {MAX_TEXT}")


def check_parsed(text: str) -> None:
    """Check the length of a text that is about to be parsed.

    Raises  TooLargeError
    """
    if len(text) > MAX_PARSED:
        raise TooLargeError(f"a text of {len(text)} characters is too long to parse; at most {MAX_PARSED} are parsed")


def check_items(count: int) -> None:
    """Check the number of elements of a list or map that is read or about to be built.

    Raises  TooLargeError
    """
    if count > MAX_ITEMS:
        raise TooLargeError(f"a list or map of {count} elements is too long; an operation takes at most {MAX_ITEMS}")


def check_work(count: int) -> None:
    """Check the number of comparisons, or of parts of nested lists.

    Raises  TooLargeError
    """
    if count > MAX_WORK:
        raise TooLargeError(f"lists are too long or nested too deeply; an operation takes at most {MAX_WORK} values or pairs")


def check_sizes(operands: Iterable[object]) -> int:
    """Check the sizes of the operands of an operation; return the work of reading them. The texts in a list count together.

    Raises  TooLargeError
    """
    effort = 0
    for one in operands:
        if isinstance(one, (str, bytes)):
            check_text(length := len(one))
            effort += length // _CHARACTERS
        elif isinstance(one, Sized):
            check_items(length := len(one))
            effort += length * _ELEMENT
            if isinstance(one, (list, tuple)):
                check_text(length := sum([len(part) for part in one if isinstance(part, (str, bytes))]))
                effort += length // _CHARACTERS
    return effort


#: The work of reading an element, and how many characters are read with a unit of work.
_ELEMENT: Final = 16
_CHARACTERS: Final = 4
