"""The mix is the same each time, its events happen as they are written, and versions are compared by the same decisions."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from benchmarks import mix_command
from benchmarks.command import main
from benchmarks.mechanisms import MECHANISMS
from benchmarks.mix import MIX, TRACES, Version, measure, summary, write_workload
from benchmarks.mix_clusters import classes_in_turn, rollouts, unlike, week
from benchmarks.mix_command import verdict
from benchmarks.mix_events import Mix, arrivals, creations, write_mix
from benchmarks.mix_traces import alibaba, azure, borg, openb
from benchmarks.shapes import node, pod

SMALL = {
    "unlike": lambda: unlike(20, 10, 5),
    "classes": lambda: classes_in_turn(20, 10, 4),
    "rollouts": lambda: rollouts(20, 8, 6),
    "week": lambda: week(10, 30, 3),
    "azure": lambda: azure(5, 20),
    "alibaba": lambda: alibaba(5, 20),
    "borg": lambda: borg(5, 20),
}


@pytest.mark.parametrize("name", SMALL)
def test_workloads_are_the_same_each_time_and_name_what_exists(name):
    mix = SMALL[name]()
    assert mix == SMALL[name]()
    known = {f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in mix.start if one["kind"] == "Pod"}
    new = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in mix.later]
    created = [key for event in mix.events if event["do"] == "create" for key in event["pods"]]
    assert sorted(created) == sorted(new)
    assert len({*new} | known) == len(new) + len(known)
    assert {key for event in mix.events if event["do"] == "delete" for key in event["pods"]} <= {*new} | known
    assert [event["at"] for event in mix.events] == sorted(event["at"] for event in mix.events)


def test_unlike_pods_have_as_many_keys_as_asked_for():
    pods = unlike(20, 30, 10).later
    assert len({msgspec.json.encode([one["metadata"]["labels"], one["spec"]]) for one in pods}) == 10


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is absent")
def test_openb_arrives_in_its_own_order():
    mix = openb(TRACES, 3)
    assert len(mix.start) == 1523
    assert [one["metadata"]["name"] for one in mix.later] == [event["pods"][0].removeprefix("default/") for event in mix.events]


def test_an_absent_trace_is_left_out_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.mix.TRACES", tmp_path / "gone")
    result = CliRunner().invoke(main, ["mix", "openb", "--write", str(tmp_path)])
    assert result.exit_code == 0
    assert (
        f"openb                   left out: {tmp_path / 'gone'}: no such folder; put the files of openb there" in result.output
    )


def _manifest(obj, kind):
    return {"apiVersion": "v1", "kind": kind, **msgspec.to_builtins(obj)}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Two nodes with room for two pods each; pods come, end, and are evicted from a tainted node."""
    nodes = [_manifest(node(at, allocatable={"cpu": "1", "memory": "1Gi", "pods": "2"}), "Node") for at in range(2)]
    first, second, third = (_manifest(pod(name), "Pod") for name in ("a", "b", "c"))
    tainted = {**nodes[0], "spec": {"taints": [{"key": "down", "effect": "NoSchedule"}]}}
    events = [
        *arrivals([(1.0, first, 5.0), (2.0, second, None)]),
        {"at": 8.0, "do": "update", "node": tainted},
        {"at": 9.0, "do": "evict", "on": "node-0"},
        {"at": 10.0, "do": "delete", "pods": ["default/b", "default/a"]},
        creations([third], 11.0),
    ]
    folder = tmp_path_factory.mktemp("mix")
    write_mix(Mix(nodes, [first, second, third], sorted(events, key=lambda event: event["at"])), folder)
    return folder, measure(Version("this"), folder)


@pytest.mark.slow
def test_events_happen_as_they_are_written(played):
    figures = played[1]
    evicted = figures["attempts"] - 3  # the copy of the second pod, if the first node had it
    assert (figures["pods"], figures["placed"], figures["pending"]) == (3, 3 + evicted, 0)
    assert figures["scaled_us"] == pytest.approx(figures["cpu_us"] * 9 / figures["loop_us"], rel=0.01)


@pytest.mark.slow
def test_without_a_mechanism_the_decisions_are_the_same(played):
    folder, figures = played
    mechanism = next(iter(MECHANISMS))
    without = measure(Version(mechanism, without=(mechanism,)), folder)
    assert without["without"] == [mechanism]
    assert without["decisions"] == figures["decisions"]


@pytest.mark.slow
def test_a_driver_that_fails_shows_its_error(played, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "moorage.py").write_text("raise ImportError('of the other checkout')")
    with pytest.raises(RuntimeError, match=r"other failed:\n(.*\n)*ImportError: of the other checkout"):
        measure(Version("other", tmp_path), played[0])


def test_a_workload_is_written_for_other_schedulers(tmp_path):
    write_workload("classes-160", tmp_path / "written", quick=True)
    later = json.loads((tmp_path / "written" / "later.json").read_text())
    assert later["kind"] == "List"
    assert [json.loads(line)["do"] for line in (tmp_path / "written" / "events.jsonl").read_text().splitlines()] == ["create"]


def _figures(version, us, decisions="same"):
    return {
        "version": version,
        "scaled_us": us,
        "cpu_us": us,
        "loop_us": 9.0,
        "grown_b": 1500,
        "placed": 7,
        "decisions": decisions,
    }


def test_versions_run_in_turn_and_differences_are_shown(monkeypatch, tmp_path):
    asked = []

    def measured(version, folder):
        asked.append(version.name)
        assert (folder / "start.json").exists()
        return _figures(version.name, 10.0 + len(asked), "other" if version.checkout == tmp_path else "same")

    monkeypatch.setattr("benchmarks.mix.measure", measured)
    monkeypatch.setitem(mix_command.MIX, "tiny", lambda quick: unlike(4, 2, 1))
    monkeypatch.setitem(MIX, "tiny", lambda quick: unlike(4, 2, 1))
    out = tmp_path / "runs.jsonl"
    result = CliRunner().invoke(main, ["mix", "tiny", "--versus", str(tmp_path), "--rounds", "3", "--json", str(out)])
    assert asked == ["this", tmp_path.name] * 3
    assert result.exit_code == 1
    assert "13.0           11-15   1.00" in result.output
    assert "14.0           12-16   1.08" in result.output
    assert result.output.count("DECIDES DIFFERENTLY") == 1
    assert [json.loads(line)["round"] for line in out.read_text().splitlines()] == [0, 0, 1, 1, 2, 2]


def test_the_summary_is_of_medians():
    found = summary([_figures("this", us) for us in (30.0, 10.0, 20.0)])
    assert (found["scaled_us"], found["least_us"], found["most_us"], found["rounds"]) == (20.0, 10.0, 30.0, 3)


@pytest.mark.parametrize(
    ("ratios", "keep", "why"),
    [
        ({"a": 1.2, "b": 1.16, "c": 0.97}, True, "earns on a 1.20, b 1.16; costs on none"),
        ({"a": 2.1, "b": 1.0}, True, "earns on a 2.10; costs on none"),
        ({"a": 1.9, "b": 1.1}, False, "earns on a 1.90; costs on none"),
        ({"a": 3.0, "b": 1.5, "c": 0.5}, False, "earns on a 3.00, b 1.50; costs on c 0.50"),
    ],
)
def test_a_mechanism_is_kept_by_the_rule(ratios, keep, why):
    assert verdict(ratios) == (keep, why)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nothing"], "unknown workload nothing; use one of openb, azure"),
        (["--ablate", "--without", "sheets"], "leave out --versus and --without"),
    ],
)
def test_what_cannot_be_measured_is_an_error(arguments, error):
    result = CliRunner().invoke(main, ["mix", *arguments])
    assert result.exit_code == 2
    assert error in " ".join(result.output.split())
