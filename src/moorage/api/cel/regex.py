"""Regular expressions with RE2's syntax, matched in time proportional to text times pattern.

Python's own engine can take exponential time for a pattern such as ``(a*)*b``, and it accepts syntax that RE2 rejects. Here a
pattern becomes a small program whose threads run over the text in parallel; of several matches, Perl's choice wins.

Source  Go's regexp and regexp/syntax packages
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from moorage.api.cel.bounds import MAX_PARSED, MAX_PROGRAM, MAX_STEPS, CostLimitError, TooLargeError
from moorage.api.cel.regex_syntax import (
    Alternate,
    Assertion,
    Characters,
    Node,
    RegexError,
    RegexGroup,
    Repeat,
    Sequence,
    parse_regex,
)

__all__ = ["Regex", "RegexError", "compile_regex"]

_CHAR, _SPLIT, _JUMP, _ASSERT, _MATCH = range(5)


class _Step(NamedTuple):
    """``_CHAR``: ``test`` a character; ``_SPLIT``: try ``to`` first, then ``other``; ``_ASSERT``: ``name`` must hold."""

    kind: int
    to: int = 0
    other: int = 0
    test: Callable[[str], bool] | None = None
    name: str = ""


class Regex:
    """A compiled pattern."""

    def __init__(self, node: Node) -> None:
        #: steps of the last search, and their limit
        self.steps = 0
        self._most = MAX_STEPS
        self._program: list[_Step] = []
        self._emit(node)
        self._add(_Step(_MATCH))

    @property
    def size(self) -> int:
        """The number of steps in the program."""
        return len(self._program)

    def find(self, text: str, most: int = MAX_STEPS) -> tuple[int, int] | None:
        """Return start and end of the leftmost match, None if there is none; of several, the one Perl prefers.

        Raises  CostLimitError after more than ``most`` steps, TooLargeError after more than ``MAX_STEPS``
        """
        self.steps, self._most = 0, min(most, MAX_STEPS)
        return self._find(text, 0)

    def find_all(self, text: str, limit: int, most: int = MAX_STEPS) -> list[str]:
        """Return the texts of non-overlapping matches, at most ``limit`` of them (below zero: all).

        Raises  CostLimitError after more than ``most`` steps, TooLargeError after more than ``MAX_STEPS``
        """
        self.steps, self._most = 0, min(most, MAX_STEPS)
        found: list[str] = []
        at, last_end = 0, -1
        while limit < 0 or len(found) < limit:
            match = self._find(text, at) if at <= len(text) else None
            if match is None:
                break
            begun, end = match
            if end > begun or begun != last_end:  # skip an empty match right after another match
                found.append(text[begun:end])
            last_end = end
            at = end if end > begun else end + 1
        return found

    def _find(self, text: str, start: int) -> tuple[int, int] | None:
        """Run all threads over the text. A thread is a position in the program and the start of its match."""
        found: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []
        seen: set[int] = set()
        for at in range(start, len(text) + 1):
            if found is None:
                self._follow(0, at, at, text, threads, seen)
            elif not threads:
                break
            self.steps += len(seen) + 1
            if self.steps > self._most:
                if self._most < MAX_STEPS:
                    raise CostLimitError
                raise TooLargeError(f"a text of {len(text)} characters takes more than {MAX_STEPS} steps to match")
            char = text[at] if at < len(text) else ""
            following: list[tuple[int, int]] = []
            seen = set()
            for step_at, begun in threads:
                step = self._program[step_at]
                if step.kind == _MATCH:
                    found = (begun, at)
                    break
                if char and step.test is not None and step.test(char):
                    self._follow(step_at + 1, begun, at + 1, text, following, seen)
            threads = following
        return found

    def _follow(self, start: int, begun: int, at: int, text: str, threads: list[tuple[int, int]], seen: set[int]) -> None:
        """Add a thread for each test reachable from a step, in order of preference. Each step is visited once per character."""
        waiting = [start]
        while waiting:
            where = waiting.pop()
            if where in seen:
                continue
            seen.add(where)
            step = self._program[where]
            if step.kind == _SPLIT:
                waiting += [step.other, step.to]
            elif step.kind == _JUMP:
                waiting.append(step.to)
            elif step.kind == _ASSERT:
                if _holds(step.name, text, at):
                    waiting.append(where + 1)
            else:
                threads.append((where, begun))

    # -- compilation ------------------------------------------------------------------------------------------------------

    def _add(self, step: _Step) -> int:
        if len(self._program) >= MAX_PROGRAM:
            raise RegexError("expression too large", effort=MAX_PROGRAM)
        self._program.append(step)
        return len(self._program) - 1

    def _emit(self, node: Node) -> None:
        match node:
            case Characters():
                self._add(_Step(_CHAR, test=node.test))
            case Assertion():
                self._add(_Step(_ASSERT, name=node.name))
            case Sequence():
                for part in node.parts:
                    self._emit(part)
            case RegexGroup():
                self._emit(node.inner)
            case Alternate():
                self._emit_choices(node.choices)
            case Repeat():
                self._emit_repeat(node)

    def _emit_choices(self, choices: tuple[Node, ...]) -> None:
        ends: list[int] = []
        for choice in choices[:-1]:
            split = self._add(_Step(_SPLIT))
            self._emit(choice)
            ends.append(self._add(_Step(_JUMP)))
            self._program[split] = _Step(_SPLIT, split + 1, len(self._program))
        self._emit(choices[-1])
        for end in ends:
            self._program[end] = _Step(_JUMP, len(self._program))

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.inner)
        if node.most is None:
            split = self._add(_Step(_SPLIT))
            self._emit(node.inner)
            self._add(_Step(_JUMP, split))
            self._branch(split, node.greedy)
            return
        splits: list[int] = []
        for _ in range(node.most - node.least):
            splits.append(self._add(_Step(_SPLIT)))
            self._emit(node.inner)
        for split in splits:
            self._branch(split, node.greedy)

    def _branch(self, split: int, greedy: bool) -> None:
        into, past = split + 1, len(self._program)
        self._program[split] = _Step(_SPLIT, into, past) if greedy else _Step(_SPLIT, past, into)


def _holds(name: str, text: str, at: int) -> bool:
    match name:
        case "^":
            return at == 0
        case "$":
            return at == len(text)
        case "m^":
            return at == 0 or text[at - 1] == "\n"
        case "m$":
            return at == len(text) or text[at] == "\n"
    before = at > 0 and _is_word(text[at - 1])
    after = at < len(text) and _is_word(text[at])
    return (before != after) is (name == "b")


def _is_word(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())


def compile_regex(pattern: str) -> Regex:
    """Compile a pattern.

    Raises  RegexError with Go's text
    """
    found = _compiled(pattern)
    if isinstance(found, RegexError):
        raise found.with_traceback(None)
    return found


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Regex | RegexError:
    """Compile a pattern; return the error, so that it is cached too."""
    try:
        if len(pattern) > MAX_PARSED:
            raise RegexError("expression too large", effort=MAX_PARSED)
        return Regex(parse_regex(pattern))
    except RegexError as error:
        return error
