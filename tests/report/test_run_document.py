"""The JSON of a run is written in pieces, with the text of one document."""

from __future__ import annotations

import msgspec
import pytest

from moorage.basis.printable import escape_json
from moorage.report import run_document
from moorage.report.outcome import InputNote, NodeOutcome, PodOutcome, Run
from moorage.report.run_document import as_data, json_pieces


def run_of(pods: int) -> Run:
    """Return a run whose texts look like the frame of the document, and contain line breaks and control characters."""
    found = [PodOutcome("default", f'p{at}\n  "pods": []', "Placed", "n\x1b[0m", requests={"cpu": at}) for at in range(pods)]
    note = InputNote("Remark", '"pods": []')
    return Run((*found,), (NodeOutcome("n", pods, pods, 110, {"cpu": 4000}, {}),), notes=(note,))


@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
@pytest.mark.parametrize("pods", [0, 1, 2, 3, 4, 7])
def test_pieces_make_up_the_document(piece, pods, monkeypatch):
    monkeypatch.setattr(run_document, "_PIECE", piece)
    run = run_of(pods)
    text = msgspec.json.format(msgspec.json.encode(as_data(run), order="sorted"), indent=2).decode()
    assert "".join(json_pieces(run)) == escape_json(text) + "\n"
    assert len([*json_pieces(run)]) == (2 + -(-pods // piece) if pods else 1)


def test_pods_are_listed_as_in_a_narrowed_run():
    whole, few = run_of(5), run_of(2)
    text = msgspec.json.format(msgspec.json.encode(as_data(whole, listed=few), order="sorted"), indent=2).decode()
    assert "".join(json_pieces(whole, listed=few)) == escape_json(text) + "\n"
