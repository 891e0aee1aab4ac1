"""The log: what was written is read, at every moment, after a kill at any byte, and never wrongly after damage."""

import random
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from moorage.basis.recording.frames import Dropped, Mark, Put, Record, Touched
from moorage.basis.recording.log_reader import STARTED, ClusterLog, LogState, is_log, with_version
from moorage.basis.recording.log_writer import LogLimits, LogWriter
from moorage.errors import InputError

SECOND = 1_000_000
LIMITS = LogLimits()
Objects = dict[tuple[str, str], tuple[str, bytes]]


def body(key: str, value: int) -> bytes:
    return b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%b"},"spec":{"priority":%d}}' % (key.encode(), value)


class Truth:
    """Writes random changes, and knows the objects after each record."""

    def __init__(self, directory: Path, seed: int, limits: LogLimits = LIMITS) -> None:
        self.directory, self.chance, self.limits = directory, random.Random(seed), limits
        self.at = 1_700_000_000 * SECOND
        self.state = LogState(self.at)
        #: The time of each record and the objects after it.
        self.moments: list[tuple[int, Objects]] = []
        self.start()

    def start(self) -> None:
        self.writer = LogWriter(self.directory, self.limits)
        self.snapshot(Mark(self.tick(), STARTED, {}))
        self.write(Mark(self.at, STARTED, {}))

    def tick(self) -> int:
        self.at += self.chance.randrange(1, 3 * SECOND)
        return self.at

    def snapshot(self, *marks: Mark) -> None:
        writer = self.writer.begin_snapshot(self.at)
        writer.add(marks)
        writer.add([Put(self.at, kind, key, version, text) for (kind, key), (version, text) in self.state.objects.items()])
        writer.finish()

    def write(self, record: Record) -> None:
        self.writer.append(record)
        self.state.apply(record)
        self.moments.append((record.at, dict(self.state.objects)))

    def change(self) -> None:
        key, dice, at = f"default/p{self.chance.randrange(12)}", self.chance.random(), self.tick()
        if dice < 0.6:
            self.write(Put(at, "Pod", key, str(len(self.moments)), body(key, self.chance.randrange(99))))
        elif dice < 0.8:
            self.write(Touched(at, "Pod", key, str(len(self.moments))))
        else:
            self.write(Dropped(at, "Pod", key))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.change()
            if self.chance.random() < 0.3:
                self.writer.flush()
            if self.chance.random() < 0.03:
                self.snapshot()
        self.writer.flush()


@pytest.mark.slow
def test_the_state_at_1000_random_moments_is_the_truth(tmp_path: Path) -> None:
    truth = Truth(tmp_path / "log", seed=1)
    truth.run(1500)
    truth.writer.close()
    log = ClusterLog(tmp_path / "log")
    assert not log.faults()
    chance = random.Random(2)
    for index in [chance.randrange(len(truth.moments) - 1) for _ in range(1000)]:
        at, objects = truth.moments[index]
        between = chance.randrange(at, truth.moments[index + 1][0])
        assert log.state_at(between).objects == objects
    (since, before), (until, after) = truth.moments[99], truth.moments[199]
    bodies = {key: body for key, (_, body) in before.items()}
    for one in log.changes_between(since, until):
        assert bodies.pop((one.kind, one.key), None) == one.before
        bodies |= {} if one.after is None else {(one.kind, one.key): one.after}
    assert bodies == {key: body for key, (_, body) in after.items()}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(seed=433, cut=0.0, again=True)
@given(seed=st.integers(0, 1000), cut=st.floats(0, 1), again=st.booleans())
def test_a_kill_at_any_byte_leaves_a_log_that_is_right_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: float, again: bool
) -> None:
    directory = tmp_path_factory.mktemp("log")
    truth = Truth(directory, seed)
    truth.run(60)
    truth.change()
    truth.writer.flush()
    last = ClusterLog(directory).changes[-1][1]
    size = round(cut * last.stat().st_size)
    truth.writer.close()
    with open(last, "r+b") as file:
        file.truncate(size)
    log = ClusterLog(directory)
    assert all(fault.torn for fault in log.faults())
    kept = [at for at, _ in truth.moments if at <= log.span()[1]]
    for at, objects in truth.moments[: len(kept)]:
        assert log.state_at(at).objects == objects
    if again:
        truth.moments = truth.moments[: len(kept)]
        truth.state.objects = dict(truth.moments[-1][1]) if kept else {}
        truth.start()
        truth.run(30)
        truth.writer.close()
        later = ClusterLog(directory)
        assert all(fault.torn for fault in later.faults())
        for at, objects in truth.moments:
            assert later.state_at(at).objects == objects


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 50), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_and_no_moment_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, seed: int, where: float, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    truth = Truth(directory, seed)
    truth.run(60)
    truth.writer.close()
    files = sorted(path for path in directory.iterdir() if path.suffix in {".changes", ".snapshot"})
    offset = int(where * sum(path.stat().st_size for path in files))
    for path in files:
        if offset < path.stat().st_size:
            break
        offset -= path.stat().st_size
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)
    log = ClusterLog(directory)
    faults = log.faults()
    assert [fault.file for fault in faults] == [path.name]
    assert not faults[0].torn
    assert faults[0].offset <= offset
    LogWriter(directory).close()  # the next recorder goes on
    for at, objects in truth.moments:
        found, why = tried(log, at)
        assert found == objects if found is not None else path.name in why or "snapshot" in why


def tried(log: ClusterLog, at: int) -> tuple[Objects | None, str]:
    try:
        return log.state_at(at).objects, ""
    except InputError as error:
        return None, str(error)


def test_a_lost_file_is_found(tmp_path: Path) -> None:
    truth = Truth(tmp_path, seed=5)
    truth.run(20)
    truth.snapshot()
    truth.run(20)
    truth.writer.close()
    ClusterLog(tmp_path).changes[0][1].unlink()
    log = ClusterLog(tmp_path)
    assert "are missing" in str(log.faults()[0])
    for at, objects in truth.moments:
        found, why = tried(log, at)
        assert found == objects if found is not None else "are missing" in why


def test_records_of_a_later_version_are_named(tmp_path: Path) -> None:
    """A whole frame whose records this version does not know is no wrong checksum."""

    class Later(Struct, frozen=True, array_like=True, tag="z"):
        at: int

    truth = Truth(tmp_path, seed=6)
    truth.run(5)
    truth.writer.append(cast(Record, Later(truth.tick())))
    truth.writer.close()
    log = ClusterLog(tmp_path)
    (fault,) = log.faults()
    assert fault.why == "records that this version of Moorage does not know"
    assert log.state_at(truth.moments[-1][0]).objects == truth.moments[-1][1]


def test_old_files_are_deleted_and_the_newest_snapshot_stays(tmp_path: Path) -> None:
    truth = Truth(tmp_path, seed=3, limits=LogLimits(kept_s=200.0))
    truth.run(800)
    truth.snapshot()
    log = ClusterLog(tmp_path)
    first, last = log.span()
    assert first < last - 200 * SECOND
    assert len(log.snapshots) < 12
    late = [(at, objects) for at, objects in truth.moments if at >= first]
    assert log.state_at(late[0][0]).objects == late[0][1]
    with pytest.raises(InputError, match="before the log begins; it covers 20"):
        log.state_at(first - 1)


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    with pytest.raises(InputError, match="another recorder writes there"):
        LogWriter(tmp_path)
    writer.close()
    LogWriter(tmp_path).close()
    assert not is_log(tmp_path)
    with pytest.raises(InputError, match="no log in this directory"):
        ClusterLog(tmp_path)


def test_a_snapshot_that_was_not_finished_is_no_snapshot(tmp_path: Path) -> None:
    truth = Truth(tmp_path, seed=4)
    truth.run(20)
    unfinished = truth.writer.begin_snapshot(truth.at)
    unfinished.add([Put(truth.at, "Pod", "a/b", "1", b"{}")])
    unfinished._file.close()  # as a kill does
    truth.run(5)
    truth.writer.close()
    assert ClusterLog(tmp_path).state_at(truth.at).objects == truth.state.objects
    LogWriter(tmp_path).close()
    assert not [*tmp_path.glob("*.unfinished")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b'{"metadata":{"name":"a"},"spec":{}}', b'{"metadata":{"resourceVersion":"7","name":"a"},"spec":{}}'),
        (b'{"metadata":{}}', b'{"metadata":{"resourceVersion":"7"}}'),
        (b'{"spec":{}}', b'{"spec":{}}'),
    ],
)
def test_the_version_returns_into_an_object(given: bytes, expected: bytes) -> None:
    assert with_version(given, "7") == expected


def test_what_a_recorder_writes_first_is_a_log_without_a_moment(tmp_path):
    (tmp_path / "lock").touch()
    assert not is_log(tmp_path)
    (tmp_path / "status.json").write_text("{}")
    assert is_log(tmp_path)
    with pytest.raises(InputError, match="no complete snapshot yet"):
        ClusterLog(tmp_path).span()
