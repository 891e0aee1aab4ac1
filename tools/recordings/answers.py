"""Answer recorded scenarios: ``python -m tools.recordings.answers FILE… > answers.jsonl``.

Reads files of scenarios (one JSON document per line, optionally gzipped) and prints one line of JSON for each: Moorage's
decisions, in the form of the recorded ones of kube-scheduler. For a document with the text of a configuration it prints the
resolved profiles, or the faults for which it is rejected.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.api.feature_gates import FeatureGates
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.errors import MoorageError, PluginError
from moorage.framework.plugin_runner import ask
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from tools.recordings.config_answers import answer as config_answer
from tools.recordings.scenarios import Scenario, load_scenario, recorded_release

__all__ = ["answer", "main", "reserve", "without_post_filter"]


def answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to one recorded document."""
    if "text" in document:
        return config_answer(document["name"], document["text"], FeatureGates(release=recorded_release(document)))
    return {"name": document["name"], "results": list(_results(load_scenario(document)))}


def _results(scenario: Scenario) -> Iterator[dict[str, Any]]:
    # Like the recordings: filter every node, report errors per node, and do not preempt in a sequence.
    cycle = Cycle(always_score=True, nominated_first=False, errors_end=False)
    profiles = {name: without_post_filter(p) if scenario.in_sequence else p for name, p in scenario.profiles.items()}
    for pod in scenario.pending:
        profile = profiles.get(pod.spec.scheduler_name)
        if profile is None:
            continue  # Another scheduler decides it.
        decision = cycle.decide(profile, pod, scenario.cluster.snapshot, scenario.nominated)
        result = _result(decision, scenario)
        if decision.error is not None:
            filtered = cycle.decide(_without_scores(profile), pod, scenario.cluster.snapshot, scenario.nominated)
            result = {**_result(filtered, scenario), **result, "scores": {}, "total": {}}
            result.pop("best", None)
        if scenario.in_sequence and "best" in result and not _has_error(result):
            result["chosen"] = result["best"][0]
            scenario.cluster.assume(pod, result["chosen"])
            scenario.drop_nomination(pod.uid)
            reserve(profile, decision, result["chosen"])
        yield result


def _has_error(result: Mapping[str, Any]) -> bool:
    """Return whether a Filter plugin reports an error for a node, which ends kube-scheduler's attempt."""
    return any(status["code"] == Code.ERROR.value for status in result["filter"].values())


def _without_scores(profile: Profile) -> Profile:
    return replace(
        profile, steps={point: steps for point, steps in profile.steps.items() if point not in {"preScore", "score"}}
    )


def without_post_filter(profile: Profile) -> Profile:
    """Return the profile as recorded sequences use it: without preemption."""
    steps = {point: in_point for point, in_point in profile.steps.items() if point != "postFilter"}
    return replace(profile, steps=steps)


def reserve(profile: Profile, decision: Decision, node: str) -> None:
    """Run Reserve, so that later pods see what this pod uses on the node."""
    states = decision.found.states if decision.found is not None else {}
    for step in profile.at("reserve"):
        held = ask(step, "reserve", states.get(step.name), decision.pod, node)
        if held is not None:
            raise PluginError(step.name, f"answered {held!r} for {decision.pod.key} on {node}")


def _result(decision: Decision, scenario: Scenario) -> dict[str, Any]:
    nodes = scenario.cluster.table.nodes
    result: dict[str, Any] = {"pod": decision.pod.key}
    if decision.error is not None:
        return {**result, "error": str(decision.error)}
    if decision.found is not None and decision.found.nodes is not None:
        result["preFilterNodes"] = sorted(decision.found.nodes)
    verdicts = decision.verdicts
    if verdicts is None:
        return {**result, "feasible": [], "message": decision.message}
    if verdicts.pre_filter is not None:
        result["preFilter"] = _status(verdicts.pre_filter)
        result["feasible"] = []
    else:
        result["filter"] = {nodes[row].name: _status(status) for row, status in verdicts.refused() if status.plugin}
        result["feasible"] = sorted(nodes[row].name for row in decision.scores.rows) if decision.scores else []
    if decision.scores is not None:
        result |= _scored(decision, nodes)
    if decision.node is None:
        result["message"] = decision.message
        result["rejectedBy"] = list(decision.rejected_by)
        if decision.post_filter is not None:
            result["postFilter"] = {
                "code": decision.post_filter.code.value,
                "message": ", ".join(decision.post_filter.reasons),
                "nominated": decision.post_filter.nominated or "",
                "victims": sorted(victim.key for victim in decision.post_filter.victims),
            }
    return result


def _scored(decision: Decision, nodes: list[Any]) -> dict[str, Any]:
    scores = decision.scores
    assert scores is not None
    names = [nodes[row].name for row in scores.rows]
    return {
        "scores": {name: {plugin: int(values[at]) for plugin, values in scores.final.items()} for at, name in enumerate(names)},
        "total": {name: int(scores.total[at]) for at, name in enumerate(names)},
        "best": sorted(nodes[row].name for row in scores.best()),
    }


def _status(status: Status) -> dict[str, Any]:
    return {"code": status.code.value, "plugin": status.plugin, "reasons": sorted(status.reasons)}


def _lines(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    yield from (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def main(paths: list[str]) -> int:
    """Answer every document of the files, one line each, on standard output."""
    if not paths:
        print("usage: python -m tools.recordings.answers FILE…", file=sys.stderr)  # noqa: T201
        return 1
    for path in paths:
        for line in _lines(Path(path)):
            document = json.loads(line)
            try:
                answered = answer(document)
            except MoorageError as error:
                answered = {"name": document["name"], "error": str(error), "results": []}
            except Exception as error:
                answered = {"name": document["name"], "error": f"{type(error).__name__}: {error}", "results": []}
            sys.stdout.write(json.dumps(answered, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
