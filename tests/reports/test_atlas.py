"""Each page of the atlas is what Moorage says of its input today, and an event's text finds its page."""

import re
import tomllib

import pytest

from moorage.basis import text_of
from moorage.report.atlas import entries, find_entries, reasons_of
from tests.reports.atlas_pages import DOCS, FEATURES, SITUATIONS, TABLE, answer_to, features_of, files, page_of, release_of

NAMES = [one["name"] for one in SITUATIONS]


def test_there_are_a_hundred_situations():
    assert len(NAMES) >= 100
    assert len(set(NAMES)) == len(NAMES)
    fields = {"name", "title", "pod", "input", "avoid", "threads"}
    assert all(one.keys() == fields for one in SITUATIONS)


def test_releases_are_those_of_the_gates():
    """A feature is there for everyone once its gate is open, which our table of gates says too."""
    tables = tomllib.loads(text_of("moorage.api.releases", "gates.toml"))
    gates = {
        name: steps
        for table in tables.values()
        for name, steps in table.items()
        if " beta" in str(steps) or " ga" in str(steps)
    }
    gated = [one for one in FEATURES if "gate" in one]
    assert len(gated) >= 9
    for one in gated:
        steps = [step.split() for step in gates[one["gate"]].split(", ")]
        is_open = (words[0] for words in steps if words[1] in {"beta", "ga"} and "off" not in words)
        assert one["since"] == next(is_open), one["name"]


@pytest.mark.slow
def test_each_feature_has_a_source_and_is_shown():
    assert all(one["source"].startswith("https://") for one in FEATURES)
    assert all(release_of(one["since"]) >= (1, 0) for one in FEATURES)
    shown = {feature["name"] for one in SITUATIONS for feature in features_of(one)}
    assert {one["name"] for one in FEATURES} == shown


@pytest.mark.parametrize("situation", SITUATIONS, ids=NAMES)
def test_a_page_is_current(situation):
    assert answer_to(situation["name"]).outcome in {"pending", "gated", "notOurs", "notCreated"}
    path = DOCS / f"{situation['name']}.md"
    assert path.read_text("utf-8") == page_of(situation), "make atlas"


@pytest.mark.slow
def test_no_other_file_is_left():
    made = files()
    assert set(DOCS.glob("*.md")) == made.keys() - {TABLE}
    assert TABLE.read_text("utf-8") == made[TABLE], "make atlas"
    assert (DOCS / "index.md").read_text("utf-8") == made[DOCS / "index.md"], "make atlas"


@pytest.mark.parametrize("entry", entries(), ids=lambda one: one.name)
def test_an_event_finds_its_page(entry):
    if not entry.event:
        return
    counted = re.sub(r"\b1 (?=node|Insufficient|Too)", "7 ", entry.event.replace("0/1 nodes", "0/12 nodes"))
    assert find_entries(counted)[0].reasons == entry.reasons


EVENTS = {
    "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.": "cpu-here-memory-there",
    "0/4 nodes are available: 4 node(s) had taint {node.cloudprovider.kubernetes.io/uninitialized: true}, that the pod didn't "
    "tolerate.": "cloud-node-uninitialized",
    "0/1 nodes are available: 1 node(s) had taint {node.kubernetes.io/disk-pressure: }, that the pod didn't tolerate.": (
        "disk-pressure"
    ),
    "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.": (
        "disk-pressure"
    ),
    "0/2 nodes are available: 2 node(s) didn't match node selector.": "nodes-not-labelled",
    "0/3 nodes are available: 3 persistentvolumeclaim \"authservice-pvc\" not found.": "claim-missing",
    "0/5 nodes are available: 2 node(s) were unschedulable, 3 Insufficient pods.": "half-cordoned-half-full",
}  # fmt: skip


@pytest.mark.parametrize(("event", "name"), EVENTS.items(), ids=EVENTS.values())
def test_events_that_people_posted(event, name):
    assert find_entries(event)[0].name == name


def test_a_text_of_something_else_finds_nothing():
    assert find_entries("Back-off restarting failed container") == []
    assert reasons_of("") == []
