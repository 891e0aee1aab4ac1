"""The differences between two loaded configurations due to their releases: rules, plugins, gates, defaults, metrics.

Only differences that affect these profiles are listed, from A to B. A rule names the last release that did not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from moorage.config.profiles import ResolvedProfile
from moorage.config.scheduler_document import Loaded
from moorage.config.show import plain_struct
from moorage.config.upgrade import rules_between
from moorage.releases import BETA, RELEASES, STABLE, Gate, Release
from moorage.releases.earlier_metrics import OLD_CACHE_SIZE
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
        ("plugin", _each(_plugins(*pair) for pair in both)),
        ("default", _each(_defaults(*pair) for pair in both)),
        ("gate", _gates(a, b)),
        ("metric", _metrics(*emulated)),
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


def _plugins(a: ResolvedProfile, b: ResolvedProfile) -> Iterator[str]:
    before, after = _points(a), _points(b)
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


def _points(profile: ResolvedProfile) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for point, names in profile.points.items():
        for name in names:
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
    known = [release.gates.keys() for release in (RELEASES[a.release], RELEASES[b.release])]
    for name in sorted(known[0] | known[1]):
        was = name in known[0] and a.gates[name]
        is_open = name in known[1] and b.gates[name]
        if name in known[0] and name in known[1]:
            if was == is_open and _gate(b, name).locked and not _gate(a, name).locked:
                yield f"{name} can no longer be set"
        elif _gate(a if name in known[0] else b, name).stage == STABLE:
            continue  # the gate became stable, so that its behaviour is a rule, or was removed later
        if was != is_open:
            yield f"{name} is {'on' if is_open else 'off'}"


def _gate(loaded: Loaded, name: str) -> Gate:
    return RELEASES[loaded.release].gates[name]


def _metrics(a: Release, b: Release) -> Iterator[str]:
    """Yield metrics that are new or gone, or have another stability level. A metric with another name counts as both."""
    changed = {*a.metrics, *b.metrics}
    before, after = _stability(a, changed), _stability(b, changed)
    for name in sorted({*before, *after}):
        if name not in before:
            yield f"{name} is new"
        elif name not in after:
            yield f"{name} is gone"
        elif before[name] != after[name]:
            yield f"{name} is {(after[name] or BETA).lower()}"


def _stability(release: Release, metrics: Iterable[str]) -> dict[str, str]:
    """Return the stability level of each of these metrics that the release has, by its name there; "" for that of 1.36."""
    held = {name: release.metrics.get(name, {}) for name in metrics if name != OLD_CACHE_SIZE or name in release.metrics}
    return {one.get("name", name): one.get("stability", "") for name, one in held.items() if not one.get("hidden", False)}


def _flags(a: Release, b: Release) -> Iterator[str]:
    for name in sorted(a.lacks_flags ^ b.lacks_flags):
        yield f"--{name} is {'unknown' if name in b.lacks_flags else 'known'}"
