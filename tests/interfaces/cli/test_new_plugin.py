"""``moorage plugin new``: the folder works as it is written."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.interfaces.cli.conftest import environment

#: Module → class and kind.
MADE = {
    "red_nodes": ("RedNodes", "filter"),
    "near_data": ("NearData", "score"),
    "both_or_none": ("BothOrNone", "permit"),
    "ten_a_team": ("TenATeam", "reserve"),
    "node_prepared": ("NodePrepared", "prebind"),
    "spots_go": ("SpotsGo", "postfilter"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in MADE:
        sys.modules.pop(name, None)


def test_who_has_no_pytest_learns_how_to_get_it(moorage, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("moorage.interfaces.cli.new_plugin.find_spec", lambda name: None)
    assert "    pip install pytest && pytest\n" in moorage("plugin", "new", "red_nodes").out


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cls", "kind"), [(name, *made) for name, made in MADE.items()])
def test_a_new_plugin_passes_its_test_and_schedules(moorage, here, monkeypatch, name, cls, kind):
    made = moorage("plugin", "new", name, "--kind", kind)
    assert (made.status, made.err) == (0, "")
    assert made.out.splitlines()[1:4] == ["", f"    cd {name}", "    pytest"]
    folder = here / name
    monkeypatch.chdir(folder)

    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert tested.stdout.rstrip().splitlines()[-1].startswith("2 passed"), tested.stdout

    (command,) = (line.strip() for line in made.out.splitlines() if "moorage simulate" in line)
    assert command in (folder / "README.md").read_text()
    ran = moorage(*command.split()[1:])
    assert (ran.status, ran.err) == (0, "")
    assert "web" in ran.out
    assert ran.out.startswith("1 placed on 2 nodes")
    assert "node-2" in ran.out or kind not in {"filter", "score"}
    assert "About the input" not in ran.out

    entry = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]["moorage.plugins"]
    assert entry == {cls: f"{name}:{cls}"}
    assert len((folder / "README.md").read_text().splitlines()) == 5


def test_a_new_filter_changes_the_placement(moorage, here, monkeypatch):
    moorage("plugin", "new", "red_nodes")
    monkeypatch.chdir(here / "red_nodes")
    cluster = here / "red_nodes" / "cluster.yaml"
    cluster.write_text(
        cluster.read_text()
        .replace("team: blue", "team: red")
        .replace("name: web, labels: {example.org/team: red}", "name: web")
    )
    ran = moorage("simulate", "-f", "cluster.yaml", "--config", "scheduler.yaml", "--plugins", "./red_nodes.py:RedNodes")
    assert ran.status == 2
    assert "2 node(s) belong to another team" in ran.out


REFUSED = {
    "not an identifier": (
        "red-nodes",
        "red-nodes: is not a Python identifier that starts with a letter and ends with a letter or digit; try red_nodes",
    ),
    "a path": ("../red", "../red: is not a Python identifier"),
    "a keyword": ("class", "class: is not a Python identifier"),
    "a keyword as a class": ("true", "true: the name is taken by Python or Moorage"),
    "a standard module": ("json", "json: the name is taken by Python or Moorage"),
    "a name in the files": ("hold", "hold: the name is taken by Python or Moorage"),
    "a built-in plugin": ("node_ports", "node_ports: NodePorts is a built-in plugin"),
    "an existing folder": ("there", "there: exists already; choose another name"),
}


@pytest.mark.parametrize(("name", "message"), REFUSED.values(), ids=REFUSED)
def test_a_name_that_cannot_be_used_is_refused(moorage, here, name, message):
    (here / "there").mkdir()
    ran = moorage("plugin", "new", name)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {message}")
    assert [one.name for one in here.iterdir()] == ["there"]


def test_the_help_has_examples_and_the_page_to_read(moorage):
    said = moorage("plugin", "new", "--help").out
    assert said.count("    moorage plugin new ") == 2
    assert "moorage help plugin-new" in said
