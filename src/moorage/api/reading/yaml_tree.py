"""YAML events to plain data: dicts, lists and scalars as kubectl sees them, safe for hostile input.

The parser (libyaml's, through PyYAML) returns a flat stream of events, and ``_Tree`` builds the tree from it without recursion.
So nesting is limited before it can exhaust the stack, aliases are copied within a budget, and 40 MB take four seconds instead
of the half minute of PyYAML's own constructor. ``yaml_scalars`` resolves scalars.

Three habits of go-yaml are kept: a later duplicate key wins (in strict mode it is an error), ``<<`` overrides the keys before
it and is overridden by those after it, and an anchor may be redefined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from sys import intern
from typing import Any, Final, Protocol, TypeAlias, cast

import yaml
from yaml.error import Mark
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from moorage.api.gc_pause import collector_paused
from moorage.api.reading.json_tree import MAX_REPEATS
from moorage.api.reading.yaml_scalars import ScalarError, key_text, resolve_plain, resolve_tagged, to_json
from moorage.errors import InputError

#: The deepest nesting of lists and mappings.
MAX_DEPTH: Final = 100
#: The maximum number of scalars, lists and mappings in one stream. A 20 MB dump has about a million.
MAX_NODES: Final = 8_000_000
#: Limits on what aliases may add to one stream, including copies of copies: the number of nodes, and of characters in them.
MAX_ALIASED: Final = 100_000
MAX_ALIASED_TEXT: Final = 32 << 20
#: libyaml compares every %TAG with all earlier ones, so their number is limited.
_MAX_DIRECTIVES: Final = 1_000

_SURROGATE = re.compile("[\ud800-\udfff]")

Plain: TypeAlias = Any  # what JSON can hold: dict[str, Plain] | list[Plain] | str | int | float | bool | None


#: Receives messages about duplicate keys.
OnRepeat: TypeAlias = Callable[[str], None]


class EventSource(Protocol):
    def get_event(self) -> Event | None: ...


class PureParser(Reader, Scanner, Parser):
    """PyYAML's own parser, for installations without libyaml: the same events, five times slower."""

    def __init__(self, stream: bytes) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)

    def get_event(self) -> Event | None:
        event: Event | None = super().get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, ScalarEvent) and _SURROGATE.search(event.value):
            problem = "found invalid Unicode character escape code"  # libyaml's text
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=cast("Mark", event.start_mark))
        return event


def default_parser() -> Callable[[bytes], EventSource]:
    """Return libyaml's parser, or the pure Python one if libyaml is missing."""
    try:
        from yaml._yaml import CParser
    except ImportError:
        return PureParser
    return CParser


def read_tree(
    data: bytes, where: str, *, strict: bool = False, on_repeat: OnRepeat | None = None,
    parser: Callable[[bytes], EventSource] | None = None,
) -> Iterator[tuple[Plain, int]]:  # fmt: skip
    """Yield each document of a YAML stream with the line it starts on. Empty documents are None.

    ``on_repeat`` receives a message for each duplicate key whose earlier value is lost; keys that are merged are none.
    Raises  InputError, with a message that starts with ``where:line:``, for anything that kubectl would reject and for
            streams beyond the limits of this module; with ``strict`` also for duplicate keys, up to ``MAX_REPEATS`` of a
            document at once
    """
    if data.count(b"\n%") + data.count(b"\r%") > _MAX_DIRECTIVES:
        raise InputError(f"{where}:1: more than {_MAX_DIRECTIVES} directives")
    tree, events = _Tree(where, strict, on_repeat), _events(data, where, parser or default_parser())
    while _build_document(tree, events):
        yield tree.root, tree.line


def _build_document(tree: _Tree, events: Iterator[Event]) -> bool:
    """Pass one document's events to the tree; return False if there are no more documents."""
    handlers = tree.handlers()
    with collector_paused():
        for event in events:
            handle = handlers.get(type(event))
            if handle is not None:
                tree.nodes += 1
                if tree.nodes > MAX_NODES:
                    raise tree.rejected(event, f"more than {MAX_NODES} values; split the file")
                handle(event)
            elif type(event) is DocumentEndEvent:
                tree.finish()
                return True
    return False


def _events(data: bytes, where: str, parser: Callable[[bytes], EventSource]) -> Iterator[Event]:
    """Yield the parser's events; turn its exceptions into an InputError with the line."""
    try:
        source = parser(data)
        while (event := source.get_event()) is not None:
            yield event
    except ReaderError as error:
        line = data.count(b"\n", 0, error.position) + 1
        raise InputError(f"{where}:{line}: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{where}:{_syntax_fault(error, data)}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{where}:1: {error}") from None


def _syntax_fault(error: yaml.MarkedYAMLError, data: bytes) -> str:
    """Return ``line: problem``. A fault that the parser reports after the last line is placed on the last line."""
    mark = error.problem_mark or error.context_mark
    line = min(mark.line + 1, data.rstrip().count(b"\n") + 1) if mark else 1
    started = (
        f", {error.context} that starts on line {error.context_mark.line + 1}" if error.context and error.context_mark else ""
    )
    return f"{line}: {error.problem}{started}"


def _line(event: Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark is not None else 1


class _NoKey:
    """Marks that the next node of a mapping is a key."""


class _Merge:
    """Marks a merge key ``<<``: its value is merged into the mapping."""


class _Open:
    """Marks an anchored node that is not complete yet."""


_NO_KEY, _MERGE, _OPEN = _NoKey(), _Merge(), _Open()


class _Tree:
    """The document being built: the innermost open collection, the key that waits for its value, and the outer collections."""

    def __init__(self, where: str, strict: bool, on_repeat: OnRepeat | None) -> None:
        self.where = where
        self.strict = strict
        self.on_repeat = on_repeat
        #: The keys that each open mapping has from a merge, by identity: they may be set again.
        self.merged: dict[int, set[str]] = {}
        self.nodes = 0
        self.aliased = self.aliased_text = 0
        self.root: Plain = None
        self.line = 1
        self.outside: list[tuple[Plain, Plain, CollectionStartEvent]] = []
        self.here: Plain = None
        self.key: Plain = _NO_KEY
        self.anchors: dict[str, Plain] = {}
        self.faults: list[str] = []

    def handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            ScalarEvent: self.scalar,
            MappingStartEvent: self.start_mapping,
            SequenceStartEvent: self.start_sequence,
            MappingEndEvent: self.end,
            SequenceEndEvent: self.end,
            AliasEvent: self.alias,
            DocumentStartEvent: self.start_document,
        }

    def start_document(self, event: DocumentStartEvent) -> None:
        self.root, self.here, self.key = None, None, _NO_KEY
        self.line = _line(event)
        self.anchors = {}
        self.merged = {}
        self.faults = []

    def finish(self) -> None:
        if self.faults:
            raise InputError(*self.faults)

    def scalar(self, event: ScalarEvent) -> None:
        value: Plain = event.value
        if event.tag is None:
            if event.implicit[0]:
                value = resolve_plain(value)
        else:
            value = self._tagged(event.tag, event)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        here = self.here
        if type(here) is dict and self.key is _NO_KEY:
            self.key = _MERGE if value == "<<" and event.implicit[0] else self._key(value, event)
            return
        if type(value) is float:
            value = self._number(value, event)
        if type(here) is list:
            here.append(value)
        else:
            self._add(value, event)

    def _tagged(self, tag: str, event: ScalarEvent) -> Plain:
        try:
            return resolve_tagged(tag, event.value)
        except ScalarError as error:
            raise self.rejected(event, str(error)) from None

    def _number(self, value: float, event: Event) -> int | float:
        try:
            return to_json(value)
        except ScalarError as error:
            raise self.rejected(event, str(error)) from None

    def _key(self, value: Plain, event: Event) -> str:
        try:
            return intern(value if type(value) is str else key_text(value))
        except ScalarError as error:
            raise self.rejected(event, str(error)) from None

    def start_mapping(self, event: MappingStartEvent) -> None:
        self._start({}, event)

    def start_sequence(self, event: SequenceStartEvent) -> None:
        self._start([], event)

    def _start(self, collection: Plain, event: CollectionStartEvent) -> None:
        if len(self.outside) >= MAX_DEPTH:
            raise self.rejected(event, f"nested deeper than {MAX_DEPTH} levels")
        if type(self.here) is dict and self.key is _NO_KEY:
            raise self.rejected(event, "invalid map key: a list or a mapping cannot be a key")
        if event.anchor is not None:
            self.anchors[event.anchor] = _OPEN
        self.outside.append((self.here, self.key, event))
        self.here, self.key = collection, _NO_KEY

    def end(self, _: Event) -> None:
        done = self.here
        self.merged.pop(id(done), None)
        self.here, self.key, started = self.outside.pop()
        if started.anchor is not None:
            self.anchors[started.anchor] = done
        self._add(done, started)

    def alias(self, event: AliasEvent) -> None:
        name = event.anchor
        if name not in self.anchors:
            raise self.rejected(event, f"unknown anchor '{name}' referenced")
        value = self.anchors[name]
        if value is _OPEN:
            raise self.rejected(event, f"anchor '{name}' value contains itself")
        if type(self.here) is dict and self.key is _NO_KEY:
            if isinstance(value, (dict, list)):
                raise self.rejected(event, "invalid map key: a list or a mapping cannot be a key")
            self.key = self._key(value, event)
            return
        if self.key is _MERGE and not isinstance(value, dict):
            raise self.rejected(event, "map merge requires map or sequence of maps as the value")
        copied = self._copy(value, event, len(self.outside))
        self._add(self._number(copied, event) if type(copied) is float else copied, event)

    def _copy(self, value: Plain, event: Event, depth: int) -> Plain:
        self.aliased += 1
        if isinstance(value, str):
            self.aliased_text += len(value)
        elif isinstance(value, dict):
            self.aliased_text += sum(map(len, value))
        if self.aliased > MAX_ALIASED or self.aliased_text > MAX_ALIASED_TEXT:
            raise self.rejected(event, "document contains excessive aliasing")
        if not isinstance(value, (dict, list)):
            return value
        if depth >= MAX_DEPTH:
            raise self.rejected(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            return {key: self._copy(inner, event, depth + 1) for key, inner in value.items()}
        return [self._copy(inner, event, depth + 1) for inner in value]

    def _add(self, value: Plain, event: Event) -> None:
        here = self.here
        if here is None:
            self.root, self.line = value, _line(event)
        elif type(here) is list:
            here.append(value)
        else:
            key, self.key = self.key, _NO_KEY
            if key is _MERGE:
                self._merge(value, event)
            else:
                self._set(key, value, event)

    def _set(self, key: str, value: Plain, event: Event) -> None:
        if key in self.here and (self.strict or self.on_repeat is not None):
            message = f"{self.where}:{_line(event)}: key {json.dumps(key, ensure_ascii=False)} already set in map"
            if self.strict:
                if len(self.faults) < MAX_REPEATS:
                    self.faults.append(message)
                return
            merged = self.merged.get(id(self.here), set())
            if key not in merged and self.on_repeat is not None:
                self.on_repeat(message)
            merged.discard(key)
        self.here[key] = value

    def _merge(self, value: Plain, event: Event) -> None:
        """Merge one mapping, or a list of mappings in which earlier ones take precedence."""
        sources = [value] if isinstance(value, dict) else value
        if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
            raise self.rejected(event, "map merge requires map or sequence of maps as the value")
        for source in reversed(sources):
            for key, inner in source.items():
                if self.strict:
                    self._set(key, inner, event)
                else:
                    self.here[key] = inner
        if self.on_repeat is not None:
            self.merged.setdefault(id(self.here), set()).update(key for source in sources for key in source)

    def rejected(self, event: Event, why: str) -> InputError:
        return InputError(f"{self.where}:{_line(event)}: {why}")
