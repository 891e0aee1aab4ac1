from __future__ import annotations

import pytest

from moorage.api.text_encoding import to_utf8
from moorage.errors import InputError

READ = {
    "plain": (b"a: 1", b"a: 1"),
    "empty": (b"", b""),
    "one byte": (b"a", b"a"),
    "text": ("ä: 1", "ä: 1".encode()),
    "text with a mark": ("\ufeffa: 1", b"a: 1"),
    "UTF-8 with a mark": (b"\xef\xbb\xbfa: 1", b"a: 1"),
    "UTF-16, little end first": ("\ufeffä: 1".encode("utf-16-le"), "ä: 1".encode()),
    "UTF-16, big end first": ("\ufeffä: 1".encode("utf-16-be"), "ä: 1".encode()),
    "UTF-16, beyond the first plane": ("\ufeff😀".encode("utf-16-le"), "😀".encode()),
    "a NUL further in is the parser's business": (b"a: \0", b"a: \0"),
}


@pytest.mark.parametrize(("data", "expected"), READ.values(), ids=READ)
def test_reads(data, expected):
    assert to_utf8(data, "f") == expected


REFUSED = {
    "gzip": (b"\x1f\x8b\x08\x00", "f:1: this is gzip-compressed; decompress it first"),
    "UTF-16 without a mark": ("a: 1".encode("utf-16-le"), "f:1: this is not UTF-8 "),
    "UTF-16 without a mark, big end first": ("a: 1".encode("utf-16-be"), "f:1: this is not UTF-8 "),
    "UTF-32": ("a: 1".encode("utf-32"), "f:1: this is not UTF-8 "),
    "UTF-16 cut off": (b"\xff\xfea\x00\n\x00b", "f:2: this starts like UTF-16 but is not (truncated data)"),
    "UTF-16 with half a pair": (b"\xff\xfea\x00\x00\xd8b\x00", "f:1: this starts like UTF-16 but is not (illegal"),
    "text with half a pair": ("a\nb: \ud800", "f:2: a lone surrogate, U+D800, is not a character"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses(data, message):
    with pytest.raises(InputError) as caught:
        to_utf8(data, "f")
    assert str(caught.value).startswith(message)
