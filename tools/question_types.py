"""Write ``ui/src/live/question_fields.ts``: the fields of a question as types, so that a form of the page sends no other one.

``python -m tools.question_types`` writes the file from the tables of the questions; ``--check`` says by its status whether
it is that of now.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from moorage.interfaces.questions.question_tables import NAMES, SentField, has_time_limit, question_table, sent_fields

FILE: Final = Path(__file__).parents[1] / "ui" / "src" / "live" / "question_fields.ts"
_TYPES: Final = {
    "text": "string",
    "texts": "string | readonly string[]",
    "flag": "boolean",
    "integer": "number",
    "number": "number",
}


def text() -> str:
    """Return the file."""
    return "\n".join([
        "/** The fields of a question, by the command that answers it. `make reference` writes this file from the tables. */",
        *(line for name in NAMES for line in _lines(name)),
        f"export type QuestionFields = {' | '.join(map(_type_name, NAMES))};",
        "",
    ])  # fmt: skip


def _lines(name: str) -> Iterator[str]:
    about = question_table(name)["asked"]
    inside = about.get("inside")
    fields = {one.name: f"readonly {one.name}?: {_type(one)};" for one in sent_fields(name)}
    yield f"export interface {_type_name(name)} {{"
    if inside:
        yield f"  readonly {inside}: {{"
    yield from (f"{'    ' if inside else '  '}{field}" for field in fields.values())
    if inside:
        yield "  };"
    if has_time_limit(name):
        yield "  readonly timeLimitSeconds?: number;"
    yield "}\n"


def _type(field: SentField) -> str:
    if field.by_code or field.file:
        return "unknown"
    return f"{_TYPES[field.type]} | undefined"


def _type_name(name: str) -> str:
    return "".join(part.title() for part in name.split("-")) + "Fields"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or with ``--check`` return 1 if it is not that of now."""
    given = sys.argv[1:] if arguments is None else arguments
    if "--check" in given:
        return int(FILE.read_text(encoding="utf-8") != text())
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
