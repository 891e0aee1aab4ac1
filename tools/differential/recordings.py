"""Ask a real program for recorded decisions again: it must give each of them, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

from tools.differential.oracle import record
from tools.recordings.comparing import differing, documents

Document = dict[str, Any]
BATCH = 25


class Replay(NamedTuple):
    """How many recorded decisions of a family there are, and those that the program gives otherwise."""

    family: str
    decisions: int
    different: tuple[str, ...]


def replays(program: Path, folder: Path, processes: int = 2) -> Iterator[Replay]:
    """Yield the result for each file of recorded decisions in a folder."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        scenarios = [one for one in documents(path) if "objects" in one]
        batches = [scenarios[at : at + BATCH] for at in range(0, len(scenarios), BATCH)]
        with ThreadPool(processes) as pool:
            answers = [one for batch in pool.imap(lambda batch: _asked(program, batch), batches) for one in batch]
        decisions = sum(len(one["expected"].get("results", ())) for one in scenarios)
        found = [text for one, answer in zip(scenarios, answers, strict=True) for text in _different(one, answer)]
        if scenarios:
            yield Replay(path.name.partition(".")[0], decisions, tuple(found))


def _asked(program: Path, scenarios: Sequence[Document]) -> list[Document]:
    return record(program, [{name: value for name, value in one.items() if name != "expected"} for one in scenarios])


def _different(scenario: Document, answer: Document) -> Iterator[str]:
    given = {one["pod"]: one for one in answer.get("results", ())}
    for wanted in scenario["expected"].get("results", ()):
        outcome = given.get(wanted["pod"])
        if any(one["code"] == "Error" for one in wanted.get("filter", {}).values()):
            # The program ends there, as kube-scheduler's attempt does; the recorder went on.
            wanted = {name: value for name, value in wanted.items() if name not in {"message", "postFilter"}}  # noqa: PLW2901
        fields = ["no decision"] if outcome is None else differing(wanted, _as_one_run(outcome, wanted))
        if fields:
            yield f"{scenario['name']} {wanted['pod']}: {', '.join(fields)}"


def _as_one_run(outcome: Document, wanted: Document) -> Document:
    """Return an outcome whose PostFilter is one of those seen, the recorded one if it was seen."""
    post = outcome.get("postFilter")
    if post is None or "postFilter" not in wanted:
        return outcome
    outcomes = [{name: one[name] for name in ("nominated", "victims") if name in one} for one in post["anyOf"]]
    seen = [one for one in outcomes if one in wanted["postFilter"]["anyOf"]]
    return {
        **outcome,
        "postFilter": {"code": post["code"], "message": post["message"], **(seen[0] if seen else {"nominated": "?"})},
    }


def table(found: Sequence[Replay]) -> str:
    """Return the figures by family, as a table of Markdown."""
    rows = [[one.family, f"{one.decisions:,}", f"{len(one.different):,}"] for one in found]
    sums = [f"{sum(one.decisions for one in found):,}", f"{sum(len(one.different) for one in found):,}"]
    lines = [["family", "decisions", "different"], ["---"] * 3, *rows, ["**all**", *sums]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
