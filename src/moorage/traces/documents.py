"""Read files of YAML documents in parts that are cut between documents. JSON is read as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from moorage.api.manifests import Document, read_documents
from moorage.errors import InputError
from moorage.traces.streams import open_bytes

__all__ = ["streamed_documents"]

#: The smallest part in bytes, so that few parts are parsed.
_PART: Final = 256 << 10
#: The largest part, in bytes: one document, or JSON.
_MOST_BYTES: Final = 1 << 30
#: A document begins with such a line; within a document no line does, as block scalars are indented.
_BEGIN: Final = b"---"
_SPACES: Final = b" \t\r\n"


def streamed_documents(path: str) -> Iterator[Document]:
    """Yield the documents of a file with the lines that they start on.

    Raises  InputError
    """
    with open_bytes(path) as file:
        for part, before in _parts(file, path):
            try:
                for document in read_documents(part, path):
                    yield Document(document.data, document.line + before)
            except InputError as error:
                raise _later(error, path, before) from None


def _parts(file: BinaryIO, path: str) -> Iterator[tuple[bytes, int]]:
    """Yield parts of a file, each with the number of lines before it."""
    held: list[bytes] = []
    size = lines = before = 0
    is_json: bool | None = None
    while line := file.readline(_MOST_BYTES + 1):
        if is_json is None and line.strip(_SPACES):
            is_json = line.lstrip(_SPACES)[:1] in {b"{", b"["}
        if size >= _PART and not is_json and line.startswith(_BEGIN):
            yield b"".join(held), before
            held, size, before = [], 0, lines
        held.append(line)
        size += len(line)
        lines += 1
        if size > _MOST_BYTES:
            raise InputError(f"{path}: a document is larger than {_MOST_BYTES >> 30} GiB")
    yield b"".join(held), before


def _later(error: InputError, path: str, before: int) -> InputError:
    """Return an error in a part with the line number in the whole file."""
    text = str(error)
    found = re.match(re.escape(path) + r":(\d+)", text)
    return error if found is None or not before else InputError(f"{path}:{int(found[1]) + before}{text[found.end() :]}")
