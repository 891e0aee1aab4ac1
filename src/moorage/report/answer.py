"""The base class of all answers of the laboratory: the question, the first line, the proof, and the document.

An answer is a subclass of ``Answer`` with fields of its own. ``to_dict`` puts them into the envelope that every command
prints with ``-o json``; ``text`` returns the text that the command prints by default.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Final, Protocol

import msgspec
from msgspec import Struct

from moorage.api.releases import CURRENT, RELEASES
from moorage.basis.printable import escape_json, one_line
from moorage.report.run_document import API_VERSION
from moorage.report.short_names import shared_end, without_end
from moorage.report.style import Style, item, lines_of, paragraph

#: Writes pages. The package is a layer above this one, so it is loaded when a page is asked for.
_PAGES: Final = "moorage.interfaces.web.site"
_CONTAINERS: Final = frozenset({dict, list, tuple})


class _PathLike(Protocol):
    """A path object, as ``open`` takes it."""

    def __fspath__(self) -> str: ...


class Proof(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How certain the answer is, and how many engine runs and probes it took.

    ``kind``: ``exhaustive``, ``bound``, ``run``, or ``bounded`` for a search that ended at a limit.
    """

    kind: str
    runs: int = 0
    probes: int = 0
    lower_bound: float | None = None


class Assumption(Struct, frozen=True):
    """An assumption: a fact that the answer depends on and that is not in the input."""

    name: str
    value: str


class Stopped(Struct, frozen=True, rename="camel"):
    """A search that ended early, so that the answer depends on the machine's speed.

    ``reason``: ``timeLimit``, with ``limit_seconds``, or ``interrupted``; ``left``: what a longer run could still find
    """

    reason: str
    limit_seconds: float | None = None
    left: tuple[str, ...] = ()


class LateText:
    """A text that ``make`` returns, and that is only computed when ``str`` reads it first. It is equal to that text."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make: Callable[[], str] | None = make
        self._text = ""

    @property
    def is_known(self) -> bool:
        """Whether the text was computed."""
        return self._make is None

    def __str__(self) -> str:
        if self._make is not None:
            self._text, self._make = self._make(), None
        return self._text

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, str | LateText) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class AnswerRequest(Struct, frozen=True, kw_only=True):
    """The question, and the input that it was asked about.

    ``release``   the kube-scheduler release whose rules apply
    ``digest``    equal digests stand for equal objects, before any changes of the question
    ``taken_at``  when the dump was taken, if that is known
    ``question``  the command's own parameters; with what-if options, ``changes`` as well
    """

    release: str
    seeds: tuple[int, ...] = (0,)
    digest: str | LateText = ""
    files: tuple[str, ...] = ()
    taken_at: str = ""
    notes: tuple[str, ...] = ()
    question: Mapping[str, Any] = {}


class Answer(Struct, frozen=True, kw_only=True):
    """Base class of answers. A subclass sets ``KIND`` and defines ``_answer``, ``_text`` and ``holds``.

    ``summary``  the first line of the text
    ``before``   the answer without the changes of the question, if it has any
    ``stopped``  how a search ended early; None if no limit of time was hit
    """

    KIND: ClassVar[str]
    #: The text names a release other than the newest one below the summary.
    NAMES_RELEASE: ClassVar[bool] = True

    request: AnswerRequest
    summary: str
    proof: Proof = Proof("run")
    assumptions: tuple[Assumption, ...] = ()
    before: Answer | None = None
    stopped: Stopped | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the answer is yes (exit status 0) or no (2); None if it is undecided within the limits (3)."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain data. A field without a value is absent."""
        return self._document(self._answer())

    def to_json(self) -> str:
        """Return the document as one line of JSON with sorted keys, escaped. That costs less than to encode ``to_dict``."""
        encoded = msgspec.json.encode(self._document(self._encodable()), order="sorted")
        # JSON escapes all control characters of ASCII but this one
        return encoded.decode() if encoded.isascii() and b"\x7f" not in encoded else escape_json(encoded.decode())

    def _document(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        asked = self.request
        given: dict[str, Any] = {"digest": str(asked.digest), "files": list(asked.files), "notes": list(asked.notes)}
        earlier = self.before
        return {
            "apiVersion": API_VERSION,
            "kind": self.KIND,
            "release": asked.release,
            "seeds": list(asked.seeds),
            "input": given | ({"takenAt": asked.taken_at} if asked.taken_at else {}),
            "question": plain(self._question()),
            "summary": self.summary,
            "answer": answer,
            "proof": plain(self.proof),
            "assumptions": plain(self.assumptions),
            **({} if self.stopped is None else {"stopped": plain(self.stopped)}),
            **({} if earlier is None else {"before": {"summary": earlier.summary, "answer": earlier._answer()}}),
        }

    def to_html(self, path: str | _PathLike) -> None:
        """Write the document as one page for a browser that needs no network, as the command prints it with ``-o html``."""
        pages: Any = importlib.import_module(_PAGES)
        pages.write_page(path, [self.to_dict()])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return the answer for a notebook: the page as HTML, or the text where HTML is not shown."""
        pages: Any = importlib.import_module(_PAGES)
        return {"text/plain": self.text(), "text/html": pages.framed_page([self.to_dict()])}

    def text(self, *, wide: bool = False, ascii_only: bool = False, colour: bool = False, width: int | None = None) -> str:
        """Return the text that the command prints, the summary first, the proof last; ``width``: that of a terminal.

        The end that the names of all nodes share is written once, below the summary.
        """
        end = shared_end(self._node_names())
        short = without_end(self, end)
        with lines_of(width, end):
            first, gap, rest = short._text(wide=wide).partition("\n\n")
            below = [paragraph(f"nodes …{end}", indent="  ")] if end else []
            whole = "\n".join([first.rstrip("\n"), *below, *short._before_and_after()]) + (gap + rest if gap else "\n")
        return Style(ascii_only=ascii_only, colour=colour).finished(whole)

    def _node_names(self) -> Collection[str]:
        """Return the names of the cluster's nodes, as far as the answer has them."""
        return ()

    def _before_and_after(self) -> list[str]:
        changes = self.request.question.get("changes", ())
        release = RELEASES.get(self.request.release, CURRENT)
        lines = [f"as kube-scheduler {release}{release.basis}"] if self.NAMES_RELEASE and release is not CURRENT else []
        lines += [f"before: {self.before.summary}"] if self.before is not None else []
        lines += [f"with the changes: {' · '.join(changes)}"] if changes else []
        lines += [stopped_text(self.stopped)] if self.stopped is not None else []
        return [item(line) for line in lines]

    def _question(self) -> Mapping[str, Any]:
        """Return ``question`` of the document."""
        return self.request.question

    def _answer(self) -> dict[str, Any]:
        """Return ``answer`` of the document as plain data."""
        raise NotImplementedError

    def _shown(self, *fields: str, **others: Any) -> dict[str, Any]:
        """Return fields of the answer as plain data by their names in the document, and ``others`` by the names given."""
        return {camel(name): plain(getattr(self, name)) for name in fields} | {k: plain(one) for k, one in others.items()}

    def _known(self, *fields: str, **others: Any) -> dict[str, Any]:
        """Return the same without those that have no value."""
        return {name: one for name, one in self._shown(*fields, **others).items() if one is not None}

    def _encodable(self) -> Mapping[str, Any]:
        """Return ``answer`` of the document for an encoder, with structs that it encodes as the plain data of ``_answer``."""
        return self._answer()

    def _text(self, *, wide: bool) -> str:
        """Return the text, escaped, with signs and without colours; a blank line ends the summary."""
        blocks = filter(None, self._blocks(wide=wide))
        return "\n\n".join([self._first_block(), *blocks]) + "\n"

    def _first_block(self) -> str:
        return paragraph(one_line(self.summary))

    def _blocks(self, *, wide: bool) -> Iterable[str]:
        """Return the blocks of the text below the summary; empty ones are left out."""
        raise NotImplementedError


def ending(text: str, *, wide: bool) -> str:
    """Return the last block of a text: how certain the answer is, and how to see more."""
    return paragraph(text if wide else f"{text} More: -o wide".lstrip())


def stopped_text(stopped: Stopped) -> str:
    """Return how a search ended, and what a longer run could find."""
    ended = "interrupted" if stopped.limit_seconds is None else f"stopped at the time limit of {stopped.limit_seconds:g} s"
    more = "A longer run" if stopped.limit_seconds is None else "A longer --time-limit"
    return f"! {ended}. {more} could find: {'; '.join(stopped.left)}." if stopped.left else f"! {ended}."


def camel(name: str) -> str:
    """Return the name of a field as documents have it: ``perNode`` for ``per_node``."""
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def plain(value: Any) -> Any:
    """Return a value as plain data, without the fields of structs that have no value."""
    return _without_none(msgspec.to_builtins(value))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        held = {name: part for name, part in value.items() if part is not None}
        return {name: _without_none(part) if type(part) in _CONTAINERS else part for name, part in held.items()}
    if isinstance(value, list | tuple):
        return [_without_none(part) if type(part) in _CONTAINERS else part for part in value]
    return value
