"""Unpacking: the same bytes as the standard library, in any pieces; damaged data and bombs are refused after a bounded size."""

import gzip
import io
import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.basis import unpacking
from moorage.basis.client.rest import _unpacked
from moorage.basis.inputs.files import open_sources
from moorage.basis.recording.frames import CHANGES, OBJECTS, Put, frames_in, packed
from moorage.basis.unpacking import FREE_SIZE, MAX_RATIO, GunzippedFile, UnpackingBound, gunzipped, unpacked_zstd, zstd
from moorage.errors import ClusterError, InputError
from moorage.simulator.traces.streams import open_bytes, whole_bytes

#: What unpacking may take at most beside the free size, in bytes.
ROOM = 24 << 20


def bomb(size):
    """Return gzip of zeros, made without them."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    return b"".join(compressor.compress(block) for _ in range(size >> 20)) + compressor.flush()


def pieces(data, cuts):
    """Return a function that reads data in pieces of any sizes."""
    ends = iter(cuts)
    file = io.BytesIO(data)
    return lambda size: file.read(min(size, next(ends, size)))


@given(
    st.lists(st.binary(max_size=400), min_size=1, max_size=4),
    st.lists(st.integers(1, 40)),
    st.integers(0, 9),
    st.integers(0, 5),
)
def test_any_members_in_any_pieces_are_what_the_standard_library_reads(members, cuts, level, zeros):
    data = b"".join(gzip.compress(one, level) for one in members) + bytes(zeros)
    assert b"".join(gunzipped(pieces(data, cuts), UnpackingBound())) == gzip.decompress(data) == b"".join(members)
    assert io.BufferedReader(GunzippedFile(io.BytesIO(data), "f"), 64).read() == b"".join(members)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_damaged_data_is_an_error_or_the_same_bytes(text, data):
    whole = bytearray(gzip.compress(text))
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del whole[at:]
    try:
        found = b"".join(gunzipped(io.BytesIO(bytes(whole)).read, UnpackingBound()))
    except InputError:
        return
    assert found == text or not whole


def test_pieces_are_bounded():
    text = random.Random(5).randbytes(1 << 12) * 2000
    found = list(gunzipped(io.BytesIO(gzip.compress(text)).read, UnpackingBound()))
    assert b"".join(found) == text
    assert max(map(len, found)) <= 1 << 20


def by_file(data, path):
    path.write_bytes(data)
    list(open_sources([str(path)]))


def by_trace(data, path):
    path.write_bytes(data)
    with open_bytes(str(path)) as file:
        while file.read(1 << 20):
            pass


def by_whole_trace(data, path):
    path.write_bytes(data)
    with whole_bytes(str(path), 8 << 30):
        pass


def by_answer(data, path):
    _unpacked(data, 2 << 30)


READERS = {"a dump": by_file, "a trace": by_trace, "a whole trace": by_whole_trace, "an answer of a server": by_answer}


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_bomb_is_refused_within_the_free_size(read, tmp_path):
    data = bomb(512 << 20)
    tracemalloc.start()
    try:
        with pytest.raises((InputError, ClusterError), match=f"grows more than {MAX_RATIO}-fold"):
            read(data, tmp_path / "bomb.json.gz")
        assert tracemalloc.get_traced_memory()[1] < 3 * FREE_SIZE + ROOM
    finally:
        tracemalloc.stop()


def test_an_answer_has_a_total_bound():
    with pytest.raises(ClusterError, match="longer than 100 bytes"):
        _unpacked(gzip.compress(random.Random(5).randbytes(200)), 100)


# -- logs of recorders --------------------------------------------------------------------------------------------------


def put(number, body=b"{}"):
    return Put(number, "pods", f"default/p{number}", str(number), body)


def test_a_frame_reads_as_it_was_written():
    records = [put(number, b'{"a":"%d"}' % number) for number in range(500)]
    [frame] = frames_in(packed(CHANGES, 1, 5, records))
    assert (frame.why, list(frame.records)) == ("", records)


@pytest.mark.slow
def test_a_snapshot_that_is_a_bomb_is_refused_within_the_free_size():
    one = packed(OBJECTS, 1, 5, [put(number, b"{}" + bytes(100_000)) for number in range(100)])
    data = one * 40  # each frame alone is within the free size
    tracemalloc.start()
    try:
        faults = [frame.why for frame in frames_in(data) if frame.why]
        assert tracemalloc.get_traced_memory()[1] < 4 * FREE_SIZE + ROOM
    finally:
        tracemalloc.stop()
    assert faults
    assert all(f"grows more than {MAX_RATIO}-fold" in why for why in faults)


def test_zstd_that_is_cut_or_damaged_is_refused(monkeypatch):
    monkeypatch.setattr(unpacking, "_CHUNK", 100)
    body = zstd.compress(random.Random(5).randbytes(1000))
    assert len(unpacked_zstd(body, UnpackingBound())) == 1000
    for wrong in (body[:-5], b"x" * 20):
        with pytest.raises(InputError, match="cannot be decompressed"):
            unpacked_zstd(wrong, UnpackingBound())
