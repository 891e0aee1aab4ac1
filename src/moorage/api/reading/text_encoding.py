"""Text encodings: convert a document to UTF-8, or reject it with a hint.

PowerShell redirects in UTF-16, Windows editors prepend a byte order mark, and a dump is easily left compressed. All code
that parses documents calls this first, so each of these cases has one clear outcome.
"""

from __future__ import annotations

from moorage.errors import InputError

_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF32_MARK = b"\xff\xfe\x00\x00"


def to_utf8(data: bytes | str, where: str) -> bytes:
    """Return a document's bytes in UTF-8 without a byte order mark.

    Raises  InputError for gzip, UTF-32, UTF-16 that is broken or unmarked, and texts with lone surrogates
    """
    if isinstance(data, str):
        try:
            return data.removeprefix("\ufeff").encode()
        except UnicodeEncodeError as error:
            line = data.count("\n", 0, error.start) + 1
            raise InputError(f"{where}:{line}: a lone surrogate, U+{ord(data[error.start]):04X}, is not a character") from None
    if data.startswith(_GZIP):
        raise InputError(f"{where}:1: this is gzip-compressed; decompress it first")
    if data.startswith(_UTF8_MARK):
        return data[len(_UTF8_MARK) :]
    encoding = _UTF16_MARKS.get(data[:2])
    if data.startswith(_UTF32_MARK) or (encoding is None and 0 in data[:2]):
        raise InputError(f"{where}:1: this is not UTF-8 (UTF-16 without a byte order mark, UTF-32 or binary); save it as UTF-8")
    return data if encoding is None else _from_utf16(data[2:], encoding, where)


def _from_utf16(data: bytes, encoding: str, where: str) -> bytes:
    try:
        return data.decode(encoding).encode()
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, "replace").count("\n") + 1
        raise InputError(f"{where}:{line}: this starts like UTF-16 but is not ({error.reason}); save it as UTF-8") from None
