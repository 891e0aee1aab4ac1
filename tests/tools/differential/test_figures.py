"""Figures of runs are added up from what they printed."""

from collections import Counter

import pytest

from tools.differential import __main__ as command
from tools.differential.scheduler import counted, table

ONE = Counter(
    {("racks", "scenarios"): 3, ("racks", "decisions"): 1_200, ("documents", "scenarios"): 1, ("documents", "different"): 2}
)


def printed(counts, made):
    return f"scenarios of 1.37.2, {made}\nracks-7: default/q00: filter\n{table(counts)}\n"


def test_a_table_is_read_back():
    assert +counted(table(ONE)) == +ONE


@pytest.mark.parametrize(
    ("made", "told", "status"),
    [
        ("--release 1.37 --seed 1 --count 4", "2 runs", 1),
        ("--release 1.36 --seed 1 --count 4", "names --release 1.37", 2),
    ],
)
def test_runs_of_one_release_are_added_up(made, told, status, tmp_path, capsys, monkeypatch):
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(printed(ONE, made))
    monkeypatch.setattr("sys.argv", ["differential", "figures", *map(str, files)])
    assert command.main() == status
    out = capsys.readouterr().out
    assert told in out
    assert ("| racks | 6 | 2,400 | 0 | 0 | 0 |" in out) is (status == 1)
