"""Questions as the arguments of the command that answers them.

A question has the fields of ``question`` in the command's document. Nothing in it may name a file: templates, node types and
configurations come with the question and are written to a folder of its own, in which the command runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from moorage.cluster.apiserver.vocabulary.statuses import bad_request

__all__ = ["Arguments", "QuestionBody", "arguments_of"]

_MOST_TEXT: Final = 4096
_MOST_LIST: Final = 2000
_MOST_FILE: Final = 512 << 10
#: A reference to a workload or pod, such as KIND/NAME. It cannot be the path of a file outside of the question's folder.
_REFERENCE: Final = re.compile(r"[a-zA-Z0-9-]+(/[a-z0-9][a-z0-9.-]*){1,2}")
#: Commands that have a time limit.
_SEARCHING: Final = frozenset({"explain", "capacity", "plan", "drain", "survive", "compare", "report"})
_ADDED: Final = re.compile(r"add ([0-9]{1,6}) nodes? like (\S+)")


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a question."""

    question: dict[str, Any]
    kind: str = ""
    changes: list[Any] = []
    seed: int | None = None


class Arguments(NamedTuple):
    """A command's arguments, and the files that they name."""

    words: tuple[str, ...]
    files: Mapping[str, str]


class _Reader:
    """Turns the fields of a question into options, one by one. ``finish`` rejects fields that are left over."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._left = dict(fields)
        self.options: list[str] = []
        self.positional: list[str] = []
        self.files: dict[str, str] = {}

    def take(self, name: str, form: Any, default: Any) -> Any:
        value = self._left.pop(name, None)
        if value is None:
            return default
        try:
            return msgspec.convert(value, form)
        except msgspec.ValidationError as error:
            raise bad_request(f"question.{name}: {error}") from None

    def text(self, name: str, option: str) -> None:
        value = self.take(name, str, "")
        if value:
            self.options.append(f"--{option}={_checked(name, value)}")

    def number(self, name: str, option: str, least: float, most: float, form: Any = int) -> None:
        value = self.take(name, form, None)
        if value is None:
            return
        if not least <= value <= most:
            raise bad_request(f"question.{name}: {value} is not between {least:g} and {most:g}")
        self.options.append(f"--{option}={value}")

    def flag(self, name: str, option: str) -> None:
        if self.take(name, bool, False):
            self.options.append(f"--{option}")

    def texts(self, name: str) -> list[str]:
        value = self.take(name, list[str] | str, [])
        found = [value] if isinstance(value, str) else value
        if len(found) > _MOST_LIST:
            raise bad_request(f"question.{name}: more than {_MOST_LIST} entries")
        return [_checked(name, one) for one in found]

    def file(self, name: str, value: Any) -> str:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) > _MOST_FILE:
            raise bad_request(f"{name}: larger than {_MOST_FILE >> 10} KiB")
        self.files[name] = text
        return name

    def finish(self) -> None:
        if self._left:
            raise bad_request(f"question: unknown fields: {', '.join(sorted(map(repr, self._left)))}")


def arguments_of(body: QuestionBody) -> Arguments:
    """Return the arguments of the command for a question, except those for its input and its scheduler.

    Raises  ApiError 400
    """
    fields = dict(body.question)
    changes = [*fields.pop("changes", []), *body.changes]
    found = next((one for one in _QUESTIONS if one.name in fields), None)
    if found is None or (body.kind and body.kind != found.kind):
        named = ", ".join(f"{one.kind} ({one.name})" for one in _QUESTIONS)
        raise bad_request(f"question: has no field of a known question, or of another kind; known: {named}")
    reader = _Reader(fields)
    found.read(reader)
    if found.command in _SEARCHING:
        reader.number("timeLimitSeconds", "time-limit", 0.1, 50, float)
    reader.finish()
    seed = () if body.seed is None else (f"--seed={body.seed}",)
    words = (found.command, *reader.options, *seed, *_changes(changes), "--", *reader.positional)
    return Arguments(words, reader.files)


def _checked(name: str, text: str) -> str:
    if not text or len(text) > _MOST_TEXT or not text.isprintable():
        raise bad_request(f"question.{name}: expected a line of at most {_MOST_TEXT} characters")
    return text


# -- changes ------------------------------------------------------------------------------------------------------------


def _changes(changes: Sequence[Any]) -> list[str]:
    if len(changes) > _MOST_LIST:
        raise bad_request(f"changes: more than {_MOST_LIST} entries")
    return [_change(one) for one in changes]


def _change(change: Any) -> str:
    """Return the option for a change, which is an edit, an atom of an explanation, or a change as documents describe it."""
    if isinstance(change, dict):
        return f"--edit={_checked('changes', msgspec.json.encode(change).decode())}"
    if not isinstance(change, str):
        raise bad_request("changes: expected edits as text, or atoms")
    text = _checked("changes", change)
    added = _ADDED.fullmatch(text)
    if added is not None:
        return f"--add-nodes=like={added[2]},count={added[1]}"
    for words, option in (("cordon ", "cordon"), ("remove nodes ", "remove-nodes"), ("scale ", "scale")):
        if text.startswith(words):
            return f"--{option}={text.removeprefix(words)}"
    return f"--edit={text}"


# -- each question ------------------------------------------------------------------------------------------------------


def _explain(reader: _Reader) -> None:
    named = [*reader.texts("explain"), *reader.texts("pods")]
    reader.positional += named
    every, by_cause = reader.take("all", bool, False), reader.take("byCause", bool, False)
    if every or not named:
        reader.options.append("--pending" if by_cause else "--all")
    reader.text("may", "may")
    reader.number("alternatives", "alternatives", 0, 20)
    reader.number("probes", "probes", 0, 2000)
    reader.flag("withQueue", "with-queue")


def _capacity(reader: _Reader) -> None:
    numbers = reader.take("numbers", dict[str, int], {})
    template = reader.take("template", str | dict[str, Any], None)
    named = [_reference("capacity", name) for name in reader.texts("capacity")]
    if template is not None:
        named.append(reader.file("template.yaml", template))
    if numbers:
        for name in numbers:
            _reference("numbers", name)
        reader.positional.append(",".join(f"{name}={count}" for name, count in numbers.items()))
    else:
        reader.positional += named
    reader.number("limit", "limit", 0, 1_000_000)
    reader.number("seeds", "seeds", 1, 100)
    reader.flag("replicas", "replicas")
    reader.flag("preempt", "preempt")
    reader.text("pending", "pending")
    if not reader.take("quota", bool, True):
        reader.options.append("--no-quota")
    if not reader.take("gains", bool, True):
        reader.options.append("--no-gains")


def _plan(reader: _Reader) -> None:
    reader.take("plan", list[str], [])
    types = reader.take("types", list[dict[str, Any]], [])
    if types:
        reader.options.append(f"--types={reader.file('types.yaml', types)}")
    reader.flag("consolidate", "consolidate")
    reader.flag("buy", "buy")
    reader.text("objective", "objective")
    for name, given in reader.take("flags", dict[str, bool], {}).items():
        if name not in {"delete_emptydir_data", "force"}:
            raise bad_request(f"question.flags: unknown flag {name!r}")
        reader.options += [f"--{name.replace('_', '-')}"] if given else []
    reader.options += [f"--pods={_reference('pods', name)}" for name in reader.texts("pods")]


def _drain(reader: _Reader) -> None:
    reader.positional += reader.texts("drain")
    for name in ("ignore_daemonsets", "delete_emptydir_data", "force", "disable_eviction", "together", "find_order"):
        reader.flag(name, name.replace("_", "-"))
    reader.flag("returns", "return")
    reader.number("surge", "surge", 0, 1000)
    reader.number("grace_period", "grace-period", -1, 86_400)
    reader.number("skip_wait_for_delete_timeout", "skip-wait-for-delete-timeout", 0, 86_400)
    for name in ("timeout", "ready_after", "pod_selector"):
        reader.text(name, name.replace("_", "-"))


def _cordon(reader: _Reader) -> None:
    reader.positional += reader.texts("cordon")


def _fail(reader: _Reader) -> None:
    named = reader.texts("fail")
    reader.text("mode", "mode")
    zone = reader.take("zone", str, "")
    if zone:
        reader.options.append(f"--zone={_checked('zone', zone)}")
    else:
        reader.positional += named


def _survive(reader: _Reader) -> None:
    reader.text("survive", "over")
    reader.number("depth", "depth", 1, 2)
    reader.number("probes", "probes", 0, 2000)
    reader.text("spare", "spare")


def _compare(reader: _Reader) -> None:
    inner = _Reader(reader.take("compare", dict[str, Any], {}))
    for side in ("a", "b"):
        config = inner.take(side, str | dict[str, Any], "")
        if config:
            inner.options.append(f"--{side}={inner.file(f'{side}.yaml', config)}")
        inner.text(f"{side}Release", f"{side}-release")
    inner.flag("replaceAll", "replace-all")
    inner.flag("allNodes", "all-nodes")
    inner.flag("strict", "strict")
    inner.options += [f"--fail-on={gate}" for gate in inner.texts("failOn")]
    inner.number("seeds", "seeds", 1, 100)
    inner.finish()
    reader.options += inner.options
    reader.files |= inner.files


def _report(reader: _Reader) -> None:
    inner = _Reader(reader.take("report", dict[str, Any], {}))
    inner.flag("allNodes", "all-nodes")
    inner.number("byEngine", "by-engine", 0, 20)
    inner.finish()
    reader.options += inner.options


def _configuration(reader: _Reader) -> None:
    reader.positional.append(reader.file("configuration.yaml", reader.take("configuration", str | dict[str, Any], "")))


def _reference(field: str, name: str) -> str:
    """Check that a name is KIND/NAME or KIND/NAMESPACE/NAME, and so no path to a file elsewhere."""
    if not _REFERENCE.fullmatch(name) or ".." in name:
        raise bad_request(f"question.{field}: {name!r} is not KIND/NAME; send a manifest as template")
    return name


class _Question(NamedTuple):
    name: str
    kind: str
    command: str
    read: Callable[[_Reader], None]


_QUESTIONS: Final = (
    _Question("explain", "Explanation", "explain", _explain),
    _Question("capacity", "Capacity", "capacity", _capacity),
    _Question("template", "Capacity", "capacity", _capacity),
    _Question("numbers", "Capacity", "capacity", _capacity),
    _Question("plan", "NodePlan", "plan", _plan),
    _Question("types", "NodePlan", "plan", _plan),
    _Question("drain", "DrainReport", "drain", _drain),
    _Question("cordon", "DrainReport", "cordon", _cordon),
    _Question("fail", "Survival", "fail", _fail),
    _Question("survive", "Survival", "survive", _survive),
    _Question("compare", "Comparison", "compare", _compare),
    _Question("configuration", "Configuration", "config", _configuration),
    _Question("report", "Overview", "report", _report),
    _Question("pods", "Explanation", "explain", _explain),
    _Question("all", "Explanation", "explain", _explain),
)
