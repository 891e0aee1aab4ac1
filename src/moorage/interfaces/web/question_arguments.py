"""Questions as the arguments of the command that answers them.

A question has the fields of ``question`` in the command's document. Nothing in it may name a file: templates, node types and
configurations come with the question and are written to a folder of its own, in which the command runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Literal, NamedTuple

import msgspec

from moorage.api.documents.statuses import bad_request
from moorage.interfaces.questions.question_tables import NAMES, SentField, has_time_limit, question_table, sent_fields

_MOST_TEXT: Final = 4096
_MOST_LIST: Final = 2000
_MOST_FILE: Final = 512 << 10
#: A reference to a workload or pod, such as KIND/NAME. It cannot be the path of a file outside of the question's folder.
_REFERENCE: Final = re.compile(r"[a-zA-Z0-9-]+(/[a-z0-9][a-z0-9.-]*){1,2}")
#: In the folder of a question: the log of an autoscaler's run, and the instance types that came with the question.
RUN: Final = "run"
TYPES: Final = "instance-types.json"
TYPES_OPTION: Final = "--instance-types="
_NUMBERS: Final[Mapping[str, Any]] = {"integer": int, "number": float}
#: How edits begin: KIND/NAME or config, and what to change. A path does not.
_EDIT: Final = re.compile(r"(?:config|[A-Za-z]+/\S+)\s+\S")
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

    def number(self, name: str, option: str, least: float, most: float, form: Any = int) -> None:
        value = self.take(name, form, None)
        if value is None:
            return
        if not least <= value <= most:
            raise bad_request(f"question.{name}: {value} is not between {least:g} and {most:g}")
        self.options.append(f"{option}={value}")

    def plain(self, field: SentField) -> None:
        """Turn a field into its option, or into positional arguments."""
        if field.file:
            given = self.file(field.file, self.take(field.name, str | dict[str, Any], ""))
            self._give(field.option, [given])
        elif field.type == "flag":
            self.options += [field.option] if self.take(field.name, bool, False) else []
        elif field.type in _NUMBERS:
            self.number(field.name, field.option, field.least, field.most, _NUMBERS[field.type])
        elif field.type == "texts":
            self._give(field.option, self.texts(field.name))
        elif value := self.take(field.name, str, ""):
            self._give(field.option, [_checked(field.name, value)])

    def _give(self, option: str, values: Sequence[str]) -> None:
        if option:
            self.options += [f"{option}={one}" for one in values]
        else:
            self.positional += values

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

    @contextmanager
    def fields_of(self, name: str) -> Iterator[_Reader]:
        """Yield a reader of the fields of a field, whose options become those of this one."""
        inner = _Reader(self.take(name, dict[str, Any], {}))
        yield inner
        inner.finish()
        self.options += inner.options
        self.positional += inner.positional
        self.files |= inner.files

    def finish(self) -> None:
        if self._left:
            raise bad_request(f"question: unknown fields: {', '.join(sorted(map(repr, self._left)))}")


def arguments_of(body: QuestionBody) -> Arguments:
    """Return the arguments of the command for a question, except those for its input and its scheduler.

    Raises  ApiError 400
    """
    fields = dict(body.question)
    changes = [*fields.pop("changes", []), *body.changes]
    if len(changes) > _MOST_LIST:
        raise bad_request(f"changes: more than {_MOST_LIST} entries")
    asked = {name: question_table(name)["asked"] for name in NAMES}
    known = [(field, name) for part in ("fields", "also") for name in NAMES for field in asked[name].get(part, ())]
    name = next((name for field, name in known if field in fields), None)
    if name is None or (body.kind and body.kind != asked[name]["kind"]):
        named = ", ".join(f"{asked[one]['kind']} ({field})" for field, one in known)
        raise bad_request(f"question: has no field of a known question, or of another kind; known: {named}")
    command, about, reader = name.partition("-")[0], asked[name], _Reader(fields)
    with reader.fields_of(about["inside"]) if "inside" in about else nullcontext(reader) as inner:
        _read_options(name, inner)
    if has_time_limit(name):
        reader.number("timeLimitSeconds", "--time-limit", 0.1, 50, float)
    reader.finish()
    seed = () if body.seed is None else (f"--seed={body.seed}",)
    options = sorted(reader.options, key=lambda option: option.partition("=")[0])
    words = (command, *options, *seed, *map(_change, changes), "--", *reader.positional)
    return Arguments(words, reader.files)


def _checked(name: str, text: str) -> str:
    if not text or len(text) > _MOST_TEXT or not text.isprintable():
        raise bad_request(f"question.{name}: expected a line of at most {_MOST_TEXT} characters")
    return text


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
    if not _EDIT.match(text) and not text.startswith("{"):  # a command would read a file of this name
        raise bad_request(f"changes: {text[:100]!r} is not a change; write KIND/NAME FIELD=VALUE, such as pod/web cpu=500m")
    return f"--edit={text}"


# -- each question ------------------------------------------------------------------------------------------------------


def _explain(reader: _Reader) -> None:
    named = [*reader.texts("explain"), *reader.texts("pods")]
    reader.positional += named
    every, by_cause = reader.take("all", bool, False), reader.take("byCause", bool, False)
    if every or not named:
        reader.options.append("--pending" if by_cause else "--all")


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
    for name in ("quota", "gains"):
        if not reader.take(name, bool, True):
            reader.options.append(f"--no-{name}")


def _plan(reader: _Reader) -> None:
    reader.take("plan", list[str], [])
    types = reader.take("types", list[dict[str, Any]], [])
    if types:
        reader.options.append(f"--types={reader.file('types.yaml', types)}")
    for name, given in reader.take("flags", dict[str, bool], {}).items():
        if name not in {"delete_emptydir_data", "force"}:
            raise bad_request(f"question.flags: unknown flag {name!r}")
        reader.options += [f"--{name.replace('_', '-')}"] if given else []
    reader.options += [f"--pods={_reference('pods', name)}" for name in reader.texts("pods")]


def _fail(reader: _Reader) -> None:
    named = reader.texts("fail")
    zone = reader.take("zone", str, "")
    if zone:
        reader.options.append(f"--zone={_checked('zone', zone)}")
    else:
        reader.positional += named


def _compare(reader: _Reader) -> None:
    for side in ("a", "b"):
        if config := reader.take(side, str | dict[str, Any], ""):
            reader.options.append(f"--{side}={reader.file(f'{side}.yaml', config)}")


def _simulate(reader: _Reader) -> None:
    if pools := reader.take("pools", str | list[Any], ""):
        reader.options.append(f"--autoscale={reader.file('pools.yaml', pools)}")
    elif autoscaler := reader.take("autoscaler", Literal["karpenter", "cluster-autoscaler"], ""):
        reader.options += [f"--autoscale={autoscaler}", f"--record={RUN}"]
        if types := reader.take("instanceTypes", str | list[Any] | dict[str, Any], ""):
            reader.options.append(f"{TYPES_OPTION}{reader.file(TYPES, types)}")
        reader.number("spotInterruptions", "--spot-interruptions", 0, 3600, float)


def _sweep(reader: _Reader) -> None:
    """Write the grid. The table has those of its fields that name no file of the server, and run no code."""
    grid = {one.name: value for one in sent_fields("sweep") if (value := reader.take(one.name, Any, None)) is not None}
    configs = _Reader(grid).take("configs", dict[str, str], {})
    files = {name: reader.file(f"config{at}.yaml", text) if text else None for at, (name, text) in enumerate(configs.items())}
    reader.options += ["--store=store", "--processes=1"]
    reader.positional.append(reader.file("grid.yaml", {**grid, **({"configs": files} if files else {})}))


#: What reads fields of a command that are no plain options.
_OTHERS: Final[Mapping[str, Callable[[_Reader], None]]] = {
    "explain": _explain, "capacity": _capacity, "plan": _plan, "fail": _fail, "compare": _compare, "simulate": _simulate,
    "sweep": _sweep,
}  # fmt: skip


def _reference(field: str, name: str) -> str:
    """Check that a name is KIND/NAME or KIND/NAMESPACE/NAME, and so no path to a file elsewhere."""
    if not _REFERENCE.fullmatch(name) or ".." in name:
        raise bad_request(f"question.{field}: {name!r} is not KIND/NAME; send a manifest as template")
    return name


def _read_options(name: str, reader: _Reader) -> None:
    if name in _OTHERS:
        _OTHERS[name](reader)
    for field in sent_fields(name):
        if not field.by_code:
            reader.plain(field)
