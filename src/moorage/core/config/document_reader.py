"""Read a text as one document: its kind and version, its body, and its duplicate fields.

Source  kube-scheduler 1.36.2, cmd/kube-scheduler/app/options/configfile.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.api.reading.manifests import read_documents
from moorage.api.reading.text_mistakes import explained
from moorage.errors import ConfigError, Fault, InputError

KIND: Final = "KubeSchedulerConfiguration"

#: The readers' message for a duplicate field: YAML names its key, JSON its path.
_REPEATED = re.compile(
    r""":(?P<line>[0-9]+):\ (?: key\ (?P<key>"(?:[^"\\]|\\.)*")\ already\ set\ in\ map | duplicate\ field\ "(?P<path>.*)" )""",
    re.VERBOSE,
)
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class SchedulerText:
    """A document: ``body`` is all but ``kind`` and ``version``; ``faults`` are its duplicate fields."""

    where: str
    kind: str
    version: str
    body: dict[str, Any]
    faults: list[Fault] = field(default_factory=list)


def read_text(text: bytes, where: str, hint: str) -> SchedulerText:
    """Read the only document of a text. ``hint`` is the apiVersion and kind to suggest if they are missing.

    Raises  ConfigError if kind or apiVersion is missing; InputError for text that is neither YAML nor JSON
    """
    data, faults = _document(text, where)
    refuse(where, _header_faults(data, text, hint))
    body = {name: value for name, value in data.items() if name not in {"apiVersion", "kind"}}
    return SchedulerText(where, data["kind"], data["apiVersion"], body, faults)


def refuse(where: str, faults: list[Fault], kind: str = KIND) -> None:
    """Raise ConfigError if there are faults."""
    if faults:
        raise ConfigError(f"{where}: cannot be used as {kind}:", faults)


def one_line_error(where: str, faults: Iterable[Fault]) -> InputError:
    """Return one error for all faults in kube-scheduler's form: a single line, several faults in brackets."""
    lines = [str(fault) for fault in faults]
    return InputError(f"{where}: {lines[0] if len(lines) == 1 else '[' + ', '.join(lines) + ']'}")


def not_registered(kind: str, version: str, kinds: Collection[str], way_out: str) -> Fault:
    """Return the fault for an unknown kind or version. ``kinds`` are the known kinds of any version."""
    text = f'no kind "{kind}" is registered for version "{version}"; {way_out}'
    known = kind in kinds
    return Fault("Unsupported value", "apiVersion" if known else "kind", text, version if known else kind)


def _document(text: bytes, where: str) -> tuple[Any, list[Fault]]:
    """Return the only document of a text, and a fault for each duplicate field."""
    faults: list[Fault] = []
    try:
        documents = list(read_documents(text, where, strict=True))
    except InputError as error:
        faults = [_repeated_fault(found) for line in str(error).splitlines() if (found := _REPEATED.search(line))]
        if not faults:
            raise explained(error, where, text) from None
        documents = list(read_documents(text, where))
    if len(documents) > 1:
        text_of_fault = f"found {len(documents)} documents; one file holds one {KIND}"
        refuse(where, [Fault("Too many", "", text_of_fault, len(documents))])
    return (documents[0].data if documents else {}), faults


def _repeated_fault(found: re.Match[str]) -> Fault:
    if found["path"] is not None:
        return Fault("Strict decoding error", found["path"], f'line {found["line"]}: duplicate field "{found["path"]}"')
    return Fault(
        "Strict decoding error", json.loads(found["key"]), f"line {found['line']}: key {found['key']} already set in map"
    )


def _header_faults(data: Any, text: bytes, hint: str) -> list[Fault]:
    """Return the faults of a document's ``kind`` and ``apiVersion``; empty if both are present."""
    if not isinstance(data, dict):
        return [Fault("Invalid value", "", f"couldn't get version/kind; a {KIND} is a mapping", "…")]
    kind, version = data.get("kind"), data.get("apiVersion")
    faults = [
        Fault("Invalid value", name, f"couldn't get version/kind; {name} must be a text", value)
        for name, value in (("kind", kind), ("apiVersion", version))
        if value is not None and not isinstance(value, str)
    ]
    if faults:
        return faults
    if not kind or not version:
        missing = "'Kind'" if not kind else "'apiVersion'"
        place = "kind" if not kind else "apiVersion"
        return [Fault("Required value", place, f"Object {missing} is missing in '{_excerpt(text)}'; write {hint}")]
    return []


def _excerpt(text: bytes) -> str:
    shown = text[: _SHOWN + 1].decode("utf-8", "replace").replace("\n", "\\n")
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
