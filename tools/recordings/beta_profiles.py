"""Record which plugins kube-scheduler enables for random configurations of each version that it reads, and compare.

    python -m tools.recordings.beta_profiles --release 1.28.8 --count 300 --to FILE

``oracles/profiles`` answers: the release's own decoding, defaults, validation and ``scheduler.New``. A line of the file has the
name, the text, and the answer. The exit status is 1 if Moorage enables other plugins for a document.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from moorage.api.feature_gates import FeatureGates
from tools.oracles import built
from tools.recordings.config_answers import answer

__all__ = ["documents", "main", "same"]

GROUP: Final = "kubescheduler.config.k8s.io"
#: Release → the versions of the configuration that it reads.
VERSIONS: Final = {"1.27.16": ("v1beta2", "v1beta3", "v1"), "1.28.8": ("v1beta3", "v1")}
PLUGINS: Final = (
    "PrioritySort", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "VolumeRestrictions", "EBSLimits", "GCEPDLimits", "NodeVolumeLimits", "AzureDiskLimits", "VolumeBinding", "VolumeZone",
    "PodTopologySpread", "InterPodAffinity", "NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder",
    "DefaultPreemption", "SchedulingGates", "SelectorSpread",
)  # fmt: skip
#: Extension point → plugins that extend it in all these releases.
AT: Final = {
    "filter": PLUGINS[1:16],
    "preFilter": ("NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "VolumeBinding", "PodTopologySpread"),
    "score": ("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity", *PLUGINS[16:18]),
    "preScore": ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"),
    "postFilter": ("DefaultPreemption",),
    "reserve": ("VolumeBinding",),
    "preBind": ("VolumeBinding",),
    "bind": ("DefaultBinder",),
    "queueSort": ("PrioritySort",),
    "multiPoint": PLUGINS,
}  # fmt: skip
#: Points that a profile cannot lack, and which are rarely changed.
_NEEDED: Final = frozenset({"bind", "queueSort"})


def documents(seed: int, release: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield configurations with their names, of each version that the release reads in turn."""
    versions = VERSIONS[release]
    for number in range(count):
        rng = random.Random(f"{seed}/{release}/{number}")  # noqa: S311 - chance, not secrecy
        version = versions[number % len(versions)]
        profiles = [_profile(rng, name) for name in ("default-scheduler", "second", "third")[: rng.choice((1, 1, 1, 2, 3))]]
        if number < len(versions):
            profiles = []  # all by default
        made = {"apiVersion": f"{GROUP}/{version}", "kind": "KubeSchedulerConfiguration", "profiles": profiles}
        yield {"name": f"{version}-{number}", "text": json.dumps(made)}


def _profile(rng: random.Random, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"schedulerName": name, "plugins": {}}
    for point, plugins in AT.items():
        if rng.random() > (0.06 if point in _NEEDED else 0.3):
            continue
        chosen = rng.sample(plugins, rng.randint(0, min(3, len(plugins))))
        off = rng.choice((["*"], chosen, rng.sample(plugins, rng.randint(0, min(3, len(plugins)))), []))
        held: dict[str, Any] = {
            "enabled": [_enabled(rng, one, point) for one in chosen],
            "disabled": [{"name": one} for one in off],
        }
        made["plugins"][point] = {key: value for key, value in held.items() if value}
    return made


def _enabled(rng: random.Random, name: str, point: str) -> dict[str, Any]:
    weighs = point in {"score", "multiPoint"} and rng.random() < 0.6
    return {"name": name, **({"weight": rng.choice((1, 2, 5, 17, 100))} if weighs else {})}


def asked(program: Path, given: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the documents with the answers of the real program."""
    text = "".join(json.dumps(one) + "\n" for one in given)
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)  # noqa: S603 - built here
    return [json.loads(line) for line in done.stdout.splitlines()]


def same(one: dict[str, Any], release: str) -> str:
    """Return how the answer here differs from the recorded one, "" if it does not."""
    wanted, found = one["expected"], answer(one["name"], one["text"], FeatureGates(release=release))
    if bool(wanted.get("refused")) != found["refused"]:
        return f"refused: {wanted.get('refused') or 'no'} there, {found['faults'] or 'no'} here"
    for name, points in (wanted.get("profiles") or {}).items():
        for point, plugins in points.items():
            key = point[0].lower() + point[1:]
            here: list[Any] = found["profiles"].get(name, {}).get(key, [])
            there = [[plugin["name"], plugin["weight"]] if key == "score" else plugin["name"] for plugin in plugins]
            if here != there:
                return f"{name} {key}: {there} there, {here} here"
    return ""


def main() -> int:
    """Record and compare."""
    parser = argparse.ArgumentParser(prog="python -m tools.recordings.beta_profiles", description=__doc__)
    parser.add_argument("--release", choices=sorted(VERSIONS), default="1.28.8")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--to", type=Path, help="where the answers go")
    parser.add_argument("--program", type=Path, help="a program that was built before")
    given = parser.parse_args()
    minor = ".".join(given.release.split(".")[:2])
    program = given.program or built("profiles", "" if minor == "1.28" else minor)
    found = asked(program, documents(given.seed, given.release, given.count))
    if given.to:
        given.to.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in found), encoding="utf-8")
    different = [(one["name"], why) for one in found if (why := same(one, given.release))]
    for name, why in different:
        sys.stdout.write(f"{name}: {why}\n")
    refused = sum(bool(one["expected"].get("refused")) for one in found)
    sys.stdout.write(f"{given.release}: {len(found)} configurations, {refused} refused, {len(different)} differ\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
