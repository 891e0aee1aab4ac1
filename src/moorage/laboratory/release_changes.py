"""The differences between two loaded configurations due to their releases: rules, plugins, gates, defaults, metrics.

Only differences that affect these profiles are listed, from A to B. A rule names the last release that did not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from moorage.config.api_versions import ApiVersion
from moorage.config.profiles import ResolvedProfile
from moorage.config.scheduler_document import Loaded
from moorage.config.show import listed, plain_struct
from moorage.config.upgrade import rules_between
from moorage.releases import RELEASES, STABLE, Gate, Release
from moorage.releases.metric_spec import Spec
from moorage.releases.metrics import metrics_of
from moorage.report.comparison_values import ReleaseChange, TextChange
from moorage.report.run_values import MeasuredRun

__all__ = ["changed_texts", "release_changes"]


def release_changes(a: Loaded, b: Loaded) -> Iterator[ReleaseChange]:
    """Yield the differences; none if both have the same release."""
    if a.release == b.release:
        return
    before = {profile.scheduler_name: profile for profile in a.profiles}
    both = [(before[one.scheduler_name], one) for one in b.profiles if one.scheduler_name in before]
    emulated = RELEASES[a.release], RELEASES[b.release]
    for kind, texts in (
        ("rule", _each(rules_between(old, *emulated) for old, _ in both)),
        ("plugin", _each(_plugins(old, new, a.version, b.version) for old, new in both)),
        ("default", _each(_defaults(*pair) for pair in both)),
        ("gate", _gates(a, b)),
        ("metric", _metrics(a, b)),
        ("flag", _flags(*emulated)),
    ):
        yield from (ReleaseChange(kind, text) for text in texts)


def changed_texts(a: MeasuredRun, b: MeasuredRun) -> Iterator[TextChange]:
    """Yield the pods that are pending in both runs, with different texts."""
    before = {one.pod: one.message for one in a.pending}
    for one in b.pending:
        if one.message != before.get(one.pod, one.message):
            yield TextChange(one.pod, before[one.pod], one.message)


def _each(found: Iterator[Iterator[str]]) -> Iterator[str]:
    """Yield each text once."""
    yield from dict.fromkeys(text for texts in found for text in texts)


def _plugins(a: ResolvedProfile, b: ResolvedProfile, of_a: ApiVersion, of_b: ApiVersion) -> Iterator[str]:
    before, after = _points(a, of_a), _points(b, of_b)
    for name in dict.fromkeys([*before, *after]):
        gained = [point for point in after.get(name, ()) if point not in before.get(name, ())]
        lost = [point for point in before.get(name, ()) if point not in after.get(name, ())]
        if gained:
            yield f"{name} runs at {', '.join(gained)}"
        if lost:
            yield f"{name} no longer runs at {', '.join(lost)}"
        weights = a.weights.get(name), b.weights.get(name)
        if None not in weights and weights[0] != weights[1]:
            yield f"{name} has the weight {weights[1]}, not {weights[0]}"


def _points(profile: ResolvedProfile, version: ApiVersion) -> dict[str, list[str]]:
    """Return the extension points of each plugin that ``config show`` lists."""
    found: dict[str, list[str]] = {}
    for point in profile.points:
        for name in listed(profile, point, version):
            found.setdefault(name, []).append(point)
    return found


def _defaults(a: ResolvedProfile, b: ResolvedProfile) -> Iterator[str]:
    for name, args in b.args.items():
        if name not in a.args:
            continue
        before, after = _flat(a.args[name]), _flat(args)
        for field in dict.fromkeys([*before, *after]):
            if before.get(field) != after.get(field):
                was = f", was {_shown(before[field])}" if field in before else ""
                yield f"{name}: {field} is {_shown(after[field])}{was}" if field in after else f"{name}: {field} is gone"


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the fields of arguments that are set, by their paths."""
    plain = plain_struct(value) if isinstance(value, msgspec.Struct) else value
    if not isinstance(plain, Mapping):
        return {} if plain is None else {path: plain}
    found: dict[str, Any] = {}
    for name, part in plain.items():
        found |= _flat(part, f"{path}.{name}" if path else name)
    return found


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _gates(a: Loaded, b: Loaded) -> Iterator[str]:
    before, after = RELEASES[a.release], RELEASES[b.release]
    for name in sorted(before.gates.keys() | after.gates.keys()):
        old, new = before.gates.get(name), after.gates.get(name)
        if old is not None and new is not None:
            yield from _changed_gate(name, a.gates[name], b.gates[name], is_locked=new.locked and not old.locked)
        elif old is not None:
            yield from _gone_gate(name, old, is_open=a.gates[name], after=after)
        elif new is not None:
            yield from _new_gate(name, new, is_open=b.gates[name], was_there=name in before.inert_gates)


def _changed_gate(name: str, was: bool, is_open: bool, *, is_locked: bool) -> Iterator[str]:
    word = "on" if is_open else "off"
    if was != is_open:
        yield f"{name} is {word}{', and locked' if is_locked else ''}"
    elif is_locked:
        yield f"{name} is locked {word}"


def _gone_gate(name: str, gate: Gate, *, is_open: bool, after: Release) -> Iterator[str]:
    """Yield what became of a gate that changes no decision in the other release."""
    group = after.opened_with.get(name)
    if group is not None:
        yield f"{name} is part of {group}"
    elif gate.stage == STABLE and is_open:
        return  # on in both
    elif gate.default and name in after.inert_gates:
        yield f"{name} graduated, always on"
    elif gate.default and after.fixed_gates.get(name, True):
        yield f"{name} is removed; always on"
    elif is_open:
        yield f"{name} is unknown; always off"


def _new_gate(name: str, gate: Gate, *, is_open: bool, was_there: bool) -> Iterator[str]:
    """Yield what a gate brings that changes no decision in the other release, where it is always on if ``was_there``."""
    if gate.stage == STABLE and is_open:
        return
    if was_there and gate.default:
        yield f"{name} {'can be set' if is_open else 'is off'}"
    elif is_open:
        yield f"{name} is on"


def _metrics(a: Loaded, b: Loaded) -> Iterator[str]:
    """Yield what differs in the metrics that are shown. A metric with another name counts as two."""
    before, after = _shown_metrics(a), _shown_metrics(b)
    hidden = {spec.name for spec in metrics_of(b.release).values() if spec.hidden and spec.deprecated}
    for name in sorted({*before, *after}):
        if name not in before:
            yield f"{name} is new"
        elif name not in after:
            yield f"{name} is {'hidden, because it is deprecated' if name in hidden else 'gone'}"
        else:
            yield from (f"{name} {text}" for text in _changed_metric(before[name], after[name]))


def _changed_metric(old: Spec, new: Spec) -> Iterator[str]:
    if old.stability != new.stability:
        yield f"is {new.stability.lower()}"
    if new.deprecated and not old.deprecated:
        yield "is deprecated"
    if old.labels != new.labels:
        yield f"has the labels {', '.join(new.labels)}, not {', '.join(old.labels)}"
    if old.buckets != new.buckets:
        yield f"has {len(new.buckets)} buckets from {new.buckets[0]:g} to {new.buckets[-1]:g}"


def _shown_metrics(loaded: Loaded) -> dict[str, Spec]:
    specs = metrics_of(loaded.release).values()
    return {spec.name: spec for spec in specs if not spec.hidden and (not spec.gate or loaded.gates[spec.gate])}


def _flags(a: Release, b: Release) -> Iterator[str]:
    for name in sorted((a.lacks_flags ^ b.lacks_flags) | (a.own_flags ^ b.own_flags)):
        is_known = name in b.own_flags or (name not in b.lacks_flags and name not in a.own_flags)
        yield f"--{name} is {'known' if is_known else 'unknown'}"
