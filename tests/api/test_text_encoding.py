from __future__ import annotations

import pytest

from moorage.api.reading.text_encoding import to_utf8
from moorage.errors import InputError

READ = {
    "plain": (b"a: 1", b"a: 1"),
    "empty": (b"", b""),
    "one byte": (b"a", b"a"),
    "text": ("ä: 1", "ä: 1".encode()),
    "ASCII with a byte order mark": ("\ufeffa: 1", b"a: 1"),
    "UTF-8 with a byte order mark": (b"\xef\xbb\xbfa: 1", b"a: 1"),
    "UTF-16, little endian": ("\ufeffä: 1".encode("utf-16-le"), "ä: 1".encode()),
    "UTF-16, big endian": ("\ufeffä: 1".encode("utf-16-be"), "ä: 1".encode()),
    "UTF-16, surrogate pair": ("\ufeff😀".encode("utf-16-le"), "😀".encode()),
    "a later NUL is left to the parser": (b"a: \0", b"a: \0"),
}


@pytest.mark.parametrize(("data", "expected"), READ.values(), ids=READ)
def test_decodes(data, expected):
    assert to_utf8(data, "f") == expected


REFUSED = {
    "gzip": (b"\x1f\x8b\x08\x00", "f:1: this is gzip-compressed; decompress it first"),
    "UTF-16 without a byte order mark": ("a: 1".encode("utf-16-le"), "f:1: this is not UTF-8 "),
    "UTF-16 without a byte order mark, big endian": ("a: 1".encode("utf-16-be"), "f:1: this is not UTF-8 "),
    "UTF-32": ("a: 1".encode("utf-32"), "f:1: this is not UTF-8 "),
    "UTF-16 truncated": (b"\xff\xfea\x00\n\x00b", "f:2: this starts like UTF-16 but is not (truncated data)"),
    "UTF-16 with a lone surrogate": (b"\xff\xfea\x00\x00\xd8b\x00", "f:1: this starts like UTF-16 but is not (illegal"),
    "UTF-8 with a lone surrogate": ("a\nb: \ud800", "f:2: a lone surrogate, U+D800, is not a character"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_rejects(data, message):
    with pytest.raises(InputError) as caught:
        to_utf8(data, "f")
    assert str(caught.value).startswith(message)
