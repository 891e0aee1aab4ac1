"""``moorage capacity``: how many instances of a pod fit, and what stops the next one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from os.path import exists
from typing import Any

import click
from msgspec.structs import replace

from moorage.errors import InputError
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.question import Asked, exit_status, open_question, print_answers
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.capacity.capacity import CapacityQuestion, capacity_of
from moorage.laboratory.capacity.capacity_templates import CapacityTemplate, TemplateSource, read_template
from moorage.laboratory.cluster import Cluster
from moorage.report.capacity import Capacity, capacity_history


@described("capacity")
def capacity(**given: Any) -> int:
    """Run ``moorage capacity``."""
    if given["replicas"] and any("=" not in one for one in given["templates"]):
        raise click.UsageError("--replicas needs numbers: web=40 worker=10")
    with Progress.of(given) as progress:
        if given["each"]:
            found = [one for path in given["paths"] for one in _answers({**given, "paths": (path,)}, progress)]
        else:
            found = _answers(given, progress)
    if given["each"] and given["output"] in {"text", "wide"}:
        sys.stdout.write(capacity_history(found))
    else:
        print_answers(found, given["output"], ascii_only=given["ascii_only"])
    return exit_status(*found)


def _answers(given: Mapping[str, Any], progress: Progress) -> list[Capacity]:
    """Return one answer for each question: for each template or mix, or for all templates together with --replicas."""
    questions = _questions(given["templates"], together=given["replicas"])
    with open_question(given, progress) as asked:
        return [_answer(asked, parts, given, progress) for parts in questions]


def _questions(texts: Sequence[str], *, together: bool) -> list[list[tuple[str, int]]]:
    """Return the questions, each as pairs of a template and a number. ``together``: all templates are one question.

    Raises  InputError
    """
    found = [_parts(text) for text in texts]
    return [[part for parts in found for part in parts]] if together else found


def _parts(text: str) -> list[tuple[str, int]]:
    if "=" not in text or exists(text):
        return [(text, 1)]
    parts = []
    for one in text.split(","):
        name, _, number = one.rpartition("=")
        if not name or not number.isascii() or not number.isdecimal() or not 0 < int(number) <= 100_000:
            raise InputError(f"{text}: write TEMPLATE=NUMBER,TEMPLATE=NUMBER with numbers from 1, such as web=3,worker=2")
        parts.append((name, int(number)))
    return parts


def _answer(asked: Asked, parts: Sequence[tuple[str, int]], given: Mapping[str, Any], progress: Progress) -> Capacity:
    seeds = tuple(range(given["seed"], given["seed"] + given["seed_count"]))
    numbered = dict(parts) if len(parts) > 1 or parts[0][1] != 1 or given["replicas"] else None
    request = asked.request({
        "capacity": [name for name, _ in parts],
        **({"numbers": numbered} if numbered else {}),
        **({"limit": given["limit"]} if given["limit"] else {}),
        **{name: True for name in ("replicas", "preempt") if given[name]},
        **({"quota": False} if given["no_quota"] else {}),
        **({"pending": "ignore"} if given["pending"] == "ignore" else {}),
    })  # fmt: skip
    request = replace(request, seeds=seeds)
    question = partial(
        CapacityQuestion, replicas=given["replicas"], limit=given["limit"], seeds=seeds, pending=given["pending"] == "first",
        preempt=given["preempt"], quota=not given["no_quota"], gains=not given["no_gains"], progress=progress.say,
        budget=asked.budget,
    )  # fmt: skip

    def ask(cluster: Cluster) -> Capacity:
        return capacity_of(cluster, request, question(_read(cluster, parts)))

    return asked.answered(ask)


def _read(cluster: Cluster, parts: Sequence[tuple[str, int]]) -> tuple[tuple[CapacityTemplate, int], ...]:
    source = TemplateSource(cluster.get, cluster.objects)
    return tuple((read_template(name, source), number) for name, number in parts)
