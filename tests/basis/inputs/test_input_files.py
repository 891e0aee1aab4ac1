"""Test which files are read, and which are rejected."""

from __future__ import annotations

import gzip
import io
import os
import socket
import stat
from io import BytesIO
from pathlib import Path

import pytest

from moorage.basis.inputs.files import open_sources
from moorage.errors import InputError


def names(*paths: Path | str, recursive: bool = False, skipped: list[str] | None = None) -> list[str]:
    found = open_sources([str(path) for path in paths], recursive=recursive, skipped=skipped)
    return [os.path.basename(source.where) for source in found]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.yaml", "a.json", "c.yml", "d.YAML", "notes.txt", "e.json.gz"):
        content = b"x" if not name.endswith("gz") else gzip.compress(b"x")
        (tmp_path / name).write_bytes(content)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "f.yaml").write_bytes(b"x")
    return tmp_path


def test_a_directory_is_read_in_name_order_without_subdirectories(tree):
    skipped: list[str] = []
    assert names(tree, skipped=skipped) == ["a.json", "b.yaml", "c.yml", "d.YAML", "e.json.gz"]
    assert [os.path.basename(path) for path in skipped] == ["notes.txt"]


def test_recursion_does_not_follow_directory_links(tree):
    (tree / "loop").symlink_to(tree)
    skipped: list[str] = []
    assert names(tree, recursive=True, skipped=skipped)[-1] == "f.yaml"
    assert any("loop (a link)" in path for path in skipped)


def test_paths_are_read_in_the_given_order(tree):
    assert names(tree / "notes.txt", tree / "a.json") == ["notes.txt", "a.json"]


def test_links_to_files_are_followed(tree):
    (tree / "link").symlink_to(tree / "a.json")
    assert names(tree / "link") == ["link"]


def test_compressed_files_are_decompressed_with_all_members(tmp_path):
    path = tmp_path / "dump"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert next(open_sources([str(path)])).data == b"one two"


def test_standard_input_is_read_once_and_may_be_compressed():
    assert next(open_sources(["-"], stdin=BytesIO(gzip.compress(b"x")))).data == b"x"
    with pytest.raises(InputError, match=r"^-: standard input can be read only once"):
        list(open_sources(["-", "-"], stdin=BytesIO(b"x")))
    with pytest.raises(InputError, match=r"^-: there is no standard input"):
        list(open_sources(["-"]))


def refused(*paths: str | Path, recursive: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        list(open_sources([str(path) for path in paths], recursive=recursive))
    return str(caught.value)


def test_special_files_are_rejected_without_blocking(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "a named pipe, not a regular file; pipe it in and read it with -f -" in refused(pipe)
    assert "a device, not a regular file" in refused("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        assert refused(tmp_path / "sock").startswith(str(tmp_path / "sock"))


def test_a_pipe_in_a_directory_is_rejected_too(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "named pipe" in refused(tmp_path)


def test_missing_files_link_loops_and_invalid_names(tmp_path):
    assert refused(tmp_path / "gone") == f"{tmp_path / 'gone'}: No such file or directory"
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "symbolic links" in refused(tmp_path / "a")
    assert "not a valid file name" in refused("a\0b")
    assert refused("x" * 5000).endswith("File name too long")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files(tmp_path):
    path = tmp_path / "secret.yaml"
    path.write_bytes(b"x")
    path.chmod(0)
    assert refused(path).endswith("Permission denied")
    path.chmod(stat.S_IRWXU)


def test_a_directory_without_manifests(tmp_path):
    assert refused(tmp_path).endswith("no .yaml, .yml or .json file in this directory")
    (tmp_path / "below").mkdir()
    assert refused(tmp_path).endswith("; -R looks into the directories below")


BROKEN_GZIP = {
    "truncated": gzip.compress(b"x" * 1000)[:-9],
    "only the header": b"\x1f\x8b\x08",
    "damaged": gzip.compress(b"hello" * 100)[:20] + b"\xff" * 20,
    "trailing data": gzip.compress(b"x") + b"rubbish",
}


@pytest.mark.parametrize("data", BROKEN_GZIP.values(), ids=BROKEN_GZIP)
def test_broken_gzip(tmp_path, data):
    path = tmp_path / "dump.json.gz"
    path.write_bytes(data)
    assert "cannot be decompressed" in refused(path)


def test_a_compression_bomb_is_not_expanded(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"\0" * (40 << 20)))
    assert "grows more than 200-fold" in refused(path)


def test_all_files_together_have_a_size_limit(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b" " * (2 << 20))
    with pytest.raises(InputError, match=r"/b: the input is larger than 3 MiB in all"):
        list(open_sources([str(tmp_path / "a"), str(tmp_path / "b")], max_bytes=3 << 20))


def test_endless_zeroes_are_not_read_to_the_end():
    class Endless(io.RawIOBase):
        def read(self, size=-1):
            return bytes(size)

    with pytest.raises(InputError, match="this is binary"):
        list(open_sources(["-"], stdin=Endless()))
