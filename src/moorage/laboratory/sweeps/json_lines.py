"""Runs as JSON Lines: the first line is the run, each further line a row of its columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from moorage.laboratory.sweeps.jobs import StoredRun
from moorage.laboratory.sweeps.run_heads import head_of, json_value, number_of, run_of_head, write_whole


class JsonLinesFormat:
    """One JSON Lines file per run; needs no extra."""

    suffix = ".jsonl"

    def write(self, run: StoredRun, file: BinaryIO) -> None:
        file.writelines(map(_line, (head_of(run), *_rows(run))))

    def read(self, path: Path) -> StoredRun:
        first, *lines = path.read_bytes().splitlines()
        head = json.loads(first)
        rows = [json.loads(line) for line in lines]
        series = {name: np.array([number_of(row[name]) for row in rows]) for name in head["columns"]}
        return run_of_head(head, series)

    def index(self, folder: Path, runs: Sequence[StoredRun]) -> None:
        write_whole(folder / "index.jsonl", lambda file: file.writelines(_line(head_of(run)) for run in runs))


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    columns = [column.tolist() for column in run.series.values()]
    for row in zip(*columns, strict=True):
        yield {name: json_value(value) for name, value in zip(run.series, row, strict=True)}
