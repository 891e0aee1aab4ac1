"""The page of outcomes, and the outcomes that are faults."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["page"]

_AREAS: Final = {
    "scheduling": "Scheduling", "apps": "Workloads", "api-machinery": "The API",
}  # fmt: skip
_HEAD: Final = Path(__file__).with_name("page_head.md").read_text()


def page(results: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Return the page, and a line for each fault: another outcome than kube-scheduler's, an unknown failure."""
    known = _known()
    faults = [*_differences(results), *_unexplained(results, known)]
    lines = [
        _HEAD,
        "| area | cluster | run on | tests | passed | failed | skipped | not run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for area, title in _AREAS.items():
        for cluster in dict.fromkeys(one["cluster"] for one in results if one["area"] == area):
            mine = [one for one in results if (one["area"], one["cluster"]) == (area, cluster)]
            states, days = Counter(map(_word, mine)), Counter(str(one["run"]) for one in mine if _word(one) != "not run")
            counts = " | ".join(str(states[word]) for word in ("passed", "failed", "skipped", "not run"))
            days_shown = ", ".join(f"{day}: {count}" for day, count in sorted(days.items())) if len(days) > 1 else "".join(days)
            lines.append(f"| {title} | {cluster} | {days_shown} | {states.total()} | {counts} |")
    names = sorted({_plain(one["name"]) for one in results if _word(one) == "failed" and not _reason(one, known)})
    if names:
        lines += ["", "Failed without a known reason:", "", *(f"* {name}" for name in names)]
    for area, title in _AREAS.items():
        lines += _table(title, [one for one in results if one["area"] == area], known)
    return "\n".join(lines) + "\n", faults


def _table(title: str, results: Sequence[Mapping[str, Any]], known: Mapping[str, str]) -> Iterator[str]:
    if not results:
        return
    clusters = list(dict.fromkeys(one["cluster"] for one in results))
    yield from ("", f"## {title}", "", f"| test | {' | '.join(clusters)} |", "|---" * (len(clusters) + 1) + "|")
    by_name: dict[str, dict[str, Mapping[str, Any]]] = {}
    for one in results:
        by_name.setdefault(one["name"], {})[one["cluster"]] = one
    for name, found in sorted(by_name.items()):
        cells = (_cell(found[cluster], known) if cluster in found else "not run" for cluster in clusters)
        yield f"| {_plain(name)} | {' | '.join(cells)} |"


def _cell(one: Mapping[str, Any], known: Mapping[str, str]) -> str:
    word = _word(one)
    if word == "failed":
        return f"failed: {_reason(one, known) or _gist(one['failure'])}"
    return f"skipped: {_gist(one['failure'])}" if word == "skipped" and one["failure"] else word


def _word(one: Mapping[str, Any]) -> str:
    state = str(one["state"])
    return state if state in {"passed", "skipped", "not run"} else "failed"


def _plain(name: str) -> str:
    """Return a name without its labels; (C) marks conformance."""
    bare = re.sub(r"\s*\[[^]]*\]", "", name).strip().replace("|", "\\|").replace("<", "&lt;")
    return f"{bare} (C)" if "[Conformance]" in name else bare


def _gist(failure: str) -> str:
    line = next(iter(failure.strip().splitlines()), "no reason given")
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|-\d{2,}", "…", line).replace("|", "\\|").replace("<", "&lt;")[:160]


def _known() -> dict[str, str]:
    text = Path(__file__).with_name("known_failures.toml").read_text()
    return {str(pattern): str(reason) for pattern, reason in tomllib.loads(text).items()}


def _reason(one: Mapping[str, Any], known: Mapping[str, str]) -> str:
    return next((reason for pattern, reason in known.items() if re.search(pattern, one["name"])), "")


def _unexplained(results: Sequence[Mapping[str, Any]], known: Mapping[str, str]) -> Iterator[str]:
    for one in results:
        if one["cluster"] == "moorage up" and _word(one) in {"failed", "not run"} and not _reason(one, known):
            yield f"{one['cluster']}: {_word(one)}: {one['name']}: {_gist(one['failure'])}"


def _differences(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    theirs = {one["name"]: _word(one) for one in results if one["cluster"] == "kube-scheduler"}
    for one in results:
        right = theirs.get(one["name"])
        if one["cluster"] == "moorage run" and right not in {None, _word(one)}:
            yield f"{one['name']}: {_word(one)} with moorage run, {right} with kube-scheduler: {_gist(one['failure'])}"
