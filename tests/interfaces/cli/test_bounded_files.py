"""Files a user names: read within bounds, or refused with a reason."""

from __future__ import annotations

import io
import os
import socket

import pytest

from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import read_file


def refusal(path, limit=100, stdin=None):
    with pytest.raises(InputError) as caught:
        read_file(str(path), limit, stdin)
    return str(caught.value)


def test_a_file_is_read_up_to_the_limit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert read_file(str(path), 100) == b"x" * 100
    assert refusal(path, 99) == f"{path}: larger than the limit of 99 bytes"


def test_an_empty_file_is_read(tmp_path):
    path = tmp_path / "a"
    path.touch()
    assert read_file(str(path), 100) == b""


def test_a_link_is_followed(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    assert read_file(str(tmp_path / "b"), 100) == b"x"


def test_standard_input_is_read_up_to_the_limit():
    assert read_file("-", 3, io.BytesIO(b"abc")) == b"abc"
    assert refusal("-", 3, io.BytesIO(b"abcd")) == "standard input: larger than the limit of 3 bytes"


def test_what_is_not_there(tmp_path):
    assert refusal(tmp_path / "a") == f"{tmp_path}/a: No such file or directory"
    assert refusal("a\0b") == r"a\x00b: this is not a valid file name"


def test_a_link_to_itself(tmp_path):
    path = tmp_path / "a"
    path.symlink_to(path)
    assert "symbolic links" in refusal(path)


def test_a_directory(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: expected a file, this is a directory"


def test_a_pipe_does_not_hang(tmp_path):
    path = tmp_path / "a"
    os.mkfifo(path)
    assert refusal(path) == f"{path}: expected a file, this is a pipe; use - to read standard input"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device(device):
    assert refusal(device) == f"{device}: expected a file, this is a device"


def test_a_socket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a")
        assert refusal("a").startswith("a: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "a"
    path.touch(mode=0)
    assert refusal(path) == f"{path}: Permission denied"


def test_a_file_that_changes_meanwhile(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    seen = []
    looked = os.fstat

    def fstat(descriptor):
        if seen:
            path.write_bytes(b"longer")
        seen.append(descriptor)
        return looked(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)
    assert refusal(path) == f"{path}: changed while it was read; try again"
