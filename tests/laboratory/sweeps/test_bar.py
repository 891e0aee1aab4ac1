"""A sweep in a notebook shows its runs in a bar of tqdm."""

import sys

from moorage.laboratory.sweeps.jobs import CallingThread
from moorage.laboratory.sweeps.sweep import sweep
from tests.laboratory.sweeps import functions

GRID = {"x": [1, 2, 3]}


def test_a_notebook_shows_the_runs_in_a_bar(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    sweep(GRID, functions.square, CallingThread(), tmp_path)
    assert "3/3" in capsys.readouterr().err


def test_nothing_is_shown_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    sweep(GRID, functions.square, CallingThread(), tmp_path)
    assert capsys.readouterr().err == ""


def test_no_bar_without_tqdm(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr("moorage.laboratory.sweeps.sweep.find_spec", lambda name: None)
    sweep(GRID, functions.square, CallingThread(), tmp_path)
    assert capsys.readouterr().err == ""
