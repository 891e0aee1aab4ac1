"""The server's metrics in Prometheus text format, with kube-apiserver's names and labels.

Source  apiserver, pkg/endpoints/metrics/metrics.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from moorage.apiserver.http.limits import Seats
from moorage.apiserver.storage.store import Store

__all__ = ["CONTENT_TYPE", "RequestMetrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[tuple[tuple[str, str], ...], int]


class RequestMetrics:
    """Counts requests. Labels come from the served kinds and never from clients, so their number is bounded."""

    _VERBS: Final = frozenset(["CREATE", "DELETE", "DELETECOLLECTION", "GET", "LIST", "PATCH", "UPDATE", "WATCH"])

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str, str, str]] = Counter()
        self._others: Counter[str] = Counter()

    def count(self, verb: str, group: str, resource: str, code: int) -> None:
        """Count an answered request."""
        verb = verb if verb in self._VERBS else "OTHER"
        self._answers[verb, group, resource, str(code)] += 1

    def count_other(self, code: int) -> None:
        """Count a request without a resource, or one rejected before its resource was known."""
        self._others[str(code)] += 1

    def text(self, store: Store, seats: Seats) -> str:
        """Return the current metrics."""
        labels = ("verb", "group", "resource", "code")
        answers = [(tuple(zip(labels, key, strict=True)), count) for key, count in sorted(self._answers.items())]
        refused = [((("code", code),), count) for code, count in sorted(self._others.items())]
        inflight = [((("request_kind", "mutating"),), seats.mutating), ((("request_kind", "readOnly"),), seats.reading)]
        objects = [
            ((("resource", kind.qualified),), store.count(kind)) for kind in store.kinds.served if kind.stored_as is None
        ]
        lines = [
            *_metric("apiserver_request_total", "counter", "Requests answered, by what they asked and how it went.", answers),
            *_metric("moorage_apiserver_other_requests_total", "counter", "Requests about no resource, by code.", refused),
            *_metric("apiserver_current_inflight_requests", "gauge", "Requests being served.", inflight),
            *_metric("apiserver_longrunning_requests", "gauge", "Watches.", [((("verb", "WATCH"),), seats.watches)]),
            *_metric("apiserver_storage_objects", "gauge", "Objects stored, by resource.", objects),
            *_metric("moorage_apiserver_resource_version", "gauge", "The version of the last change.", [((), store.version)]),
        ]
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{key}="{text}"' for key, text in labels)
        yield f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"
