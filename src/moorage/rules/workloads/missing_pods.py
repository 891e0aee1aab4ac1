"""Which pods a workload lacks, and under which names: what the controllers of ``up`` and the expansion of ``simulate`` share.

The controllers work on documents of the API, the expansion on structs, so everything here takes and returns plain values.

Source  kubernetes, pkg/controller: controller_utils.go; statefulset/stateful_set_utils.go; job/job_controller.go, manageJob;
        job/indexed_job_utils.go; deployment/util/deployment_util.go
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from moorage.api.documents import object_fields as k8s
from moorage.api.quantity import parse_int64

# Completion indexes of an indexed job in compact form: ``1,3-5,7``.
#
# Source  kubernetes, pkg/controller/job/indexed_job_utils.go


@dataclass(frozen=True, slots=True)
class Indexes:
    """Indexes as sorted, disjoint spans, both ends included. A job may have too many indexes for a set."""

    spans: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def with_numbers(self, numbers: Iterable[int]) -> Indexes:
        """Return the union with indexes that are given one by one."""
        return self.with_spans((number, number) for number in numbers)

    def with_spans(self, spans: Iterable[tuple[int, int]]) -> Indexes:
        """Return the union, with spans that touch joined."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted([*self.spans, *spans]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return Indexes(tuple(merged))

    def __str__(self) -> str:
        return ",".join(_spelled(first, last) for first, last in self.spans)

    def free_below(self, end: int) -> Iterator[int]:
        """Yield the indexes from 0 to below ``end`` that are not in this."""
        start = 0
        for first, last in self.spans:
            yield from range(start, min(first, end))
            start = last + 1
        yield from range(start, end)


def parse_indexes(text: str, completions: int) -> Indexes:
    """Parse ``1,3-5,7`` and return the indexes below ``completions``; invalid parts are skipped."""
    spans = []
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        first, last = parse_int64(low), parse_int64(high or low)
        if first is not None and last is not None and max(0, first) <= min(last, completions - 1):
            spans.append((max(0, first), min(last, completions - 1)))
    return Indexes().with_spans(spans)


def _spelled(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


POD_TEMPLATE_HASH: Final = "pod-template-hash"
#: Label: the revision of a stateful or daemon set that a pod was created from.
REVISION_HASH: Final = "controller-revision-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_BUILTIN_CONTROLLER: Final = "kubernetes.io/job-controller"
#: The maximum length of a generated name before its suffix.
_MAX_BASE: Final = 58
_encode = msgspec.json.Encoder(order="deterministic").encode


def content_hash(template: object, *more: str) -> str:
    """Return a hash of ten characters of a pod template, given as document or struct, and of the texts in ``more``."""
    return k8s.stable_suffix(_encode(template).decode(), *more, length=10)


def revision_number(annotations: Mapping[str, str]) -> int:
    """Return the revision of a deployment or replica set; 0 without one."""
    return parse_int64(annotations.get(REVISION, "")) or 0


# -- stateful sets ------------------------------------------------------------------------------------------------------


def ordinal_of(set_name: str, pod_name: str) -> int | None:
    """Return the ordinal in a pod's name; None for a name that is not of this set."""
    base, _, ending = pod_name.rpartition("-")
    number = parse_int64(ending)
    return number if base == set_name and number is not None and ending == str(number) else None


def stateful_labels(pod_name: str, ordinal: int, revision: str) -> dict[str, str]:
    """Return the labels that a stateful set adds to those of its template."""
    return {
        "statefulset.kubernetes.io/pod-name": pod_name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION_HASH: revision,
    }


def stateful_claim_name(template_name: str, set_name: str, ordinal: int) -> str:
    """Return the name of the claim that a pod gets from a claim template of its set."""
    return f"{template_name}-{set_name}-{ordinal}"


# -- jobs ---------------------------------------------------------------------------------------------------------------


def is_ours_to_run(managed_by: str | None) -> bool:
    """Return whether the built-in job controller manages a job with this ``managedBy``."""
    return (managed_by or _BUILTIN_CONTROLLER) == _BUILTIN_CONTROLLER


def wanted_active(parallelism: int, completions: int | None, *, succeeded: int, failed_indexes: int, active: int) -> int:
    """Return how many pods of a job should be active; without ``completions`` a job starts no pod after its first success."""
    if completions is None:
        return active if succeeded else parallelism
    return max(0, min(completions - succeeded - failed_indexes, parallelism))


def completion_index(annotations: Mapping[str, str], labels: Mapping[str, str]) -> int | None:
    """Return the completion index of a pod; None without one."""
    return parse_int64(annotations.get(COMPLETION_INDEX) or labels.get(COMPLETION_INDEX, ""))


def free_indexes(completions: int, done: Indexes, failed: str, busy: Collection[int | None]) -> Iterator[int]:
    """Yield the indexes, lowest first, that neither succeeded nor ``failed`` permanently, and are not ``busy``."""
    free = done.with_spans(parse_indexes(failed, completions).spans).free_below(completions)
    return (index for index in free if index not in busy)


def indexed_base(job_name: str, index: int) -> str:
    """Return the ``generateName`` of an index's pods."""
    ending = f"-{index}-"
    return job_name[: _MAX_BASE - len(ending)] + ending
