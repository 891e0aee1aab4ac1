"""Moments as text, and logs as the input of every command."""

from pathlib import Path

import pytest

from moorage.basis.inputs.files import open_sources
from moorage.basis.recording.frames import Mark, Put
from moorage.basis.recording.log_reader import STARTED, log_of, moment_text, objects_at, parse_moment
from moorage.basis.recording.log_writer import LogWriter
from moorage.errors import InputError
from moorage.simulator.cluster_reader import read

SECOND = 1_000_000
#: 2026-11-24T13:00:00Z and 14:30:00Z.
FIRST, LAST = 1_795_525_200 * SECOND, 1_795_530_600 * SECOND

CASES = {
    "": "2026-11-24T14:30:00Z",
    "now": "2026-11-24T14:30:00Z",
    "-10m": "2026-11-24T14:20:00Z",
    "-1.5s": "2026-11-24T14:29:58.500000Z",
    "14:03": "2026-11-24T14:03:00Z",
    "14:03:07.25": "2026-11-24T14:03:07.250000Z",
    "2026-11-24T14:03:00Z": "2026-11-24T14:03:00Z",
    "2026-11-24 14:03": "2026-11-24T14:03:00Z",
    "2026-11-24T15:03:00+01:00": "2026-11-24T14:03:00Z",
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_a_moment_is_read(text: str, expected: str) -> None:
    assert moment_text(parse_moment(text, FIRST, LAST)) == expected


def test_a_time_of_day_after_the_end_is_that_of_the_day_before() -> None:
    assert moment_text(parse_moment("15:00", FIRST - 86_400 * SECOND, LAST)) == "2026-11-23T15:00:00Z"


@pytest.mark.parametrize(
    "text",
    ["yesterday", "25:00", "14:03:99", "-5", "2026-13-01", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "١٤:٠٣"],
)
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="not a moment; write 2026"):
        parse_moment(text, FIRST, LAST)


def node(name: str) -> bytes:
    return b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"%b"}}' % name.encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log with a node at 14:00 and a second one at 14:10, after which nothing was recorded until 14:30."""
    directory = tmp_path / "log"
    writer = LogWriter(directory)
    start, later = parse_moment("14:00", FIRST, LAST), parse_moment("14:10", FIRST, LAST)
    snapshot = writer.begin_snapshot(start)
    mark = Mark(start, STARTED, {"server": "https://c1", "version": "v1.36.2", "unserved": ["podgroups", "csinodes"]})
    snapshot.add([mark, Put(start, "Node", "n1", "5", node("n1"))])
    snapshot.finish()
    writer.append(mark)
    writer.append(Put(later, "Node", "n2", "6", node("n2")))
    writer.close()
    return directory


def test_a_log_is_input_like_a_dump(log: Path) -> None:
    found = read((str(log),), False)
    assert [(one.name, one.metadata.resource_version) for one in found.nodes] == [("n1", "5"), ("n2", "6")]
    assert found.report.taken_at == "2026-11-24T14:10:00Z"
    assert found.report.server_version == "v1.36.2"
    assert "csinodes were not read: not served" in found.report.notes
    assert not any("podgroups" in note for note in found.report.notes)
    earlier = read((f"{log}@14:05",), False)
    assert [one.name for one in earlier.nodes] == ["n1"]
    assert earlier.report.taken_at == "2026-11-24T14:05:00Z"


def test_a_moment_after_the_last_record_says_what_is_not_known(log: Path) -> None:
    assert b"changes after 2026-11-24T14:10:00Z" in objects_at(*log_of(f"{log}@2026-11-24T14:30:00Z"))


def test_moments_that_cannot_be_read_are_errors(log: Path) -> None:
    for moment, why in (("13:00", "before the log begins; it covers 2026-11-24T14:00:00Z to"), ("soon", "not a moment")):
        with pytest.raises(InputError, match=why):
            [*open_sources([f"{log}@{moment}"])]
    with pytest.raises(InputError, match="No such file"):
        [*open_sources([f"{log}-none@14:00"])]
