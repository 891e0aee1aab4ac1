"""Cells of CSV: a spreadsheet computes none of them."""

import csv

import pytest

from moorage.basis.printable import csv_cell
from moorage.laboratory.frames import frame_of

CELLS = {
    "=1+1": "'=1+1", "+cmd|' /C calc'!A0": "'+cmd|' /C calc'!A0", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1",
    "web": "web", "-": "-", "": "", -5: -5, 2.5: 2.5,
}  # fmt: skip


@pytest.mark.parametrize(("value", "cell"), CELLS.items(), ids=map(repr, CELLS))
def test_a_cell(value, cell):
    assert csv_cell(value) == cell


def test_a_frame_is_written_without_formulas(tmp_path):
    frame_of(["=name", "value"], [("=1+1", -5), ("web", 3)]).to_csv(tmp_path / "f.csv")
    rows = list(csv.reader((tmp_path / "f.csv").read_text("utf-8").splitlines()))
    assert rows == [["'=name", "value"], ["'=1+1", "-5"], ["web", "3"]]
