"""Decoding lines and pages in one step gives the same result as decoding object by object."""

from __future__ import annotations

import json

import pytest

from moorage.api.core import Pod
from moorage.basis.client.listwatch import ObjectDecoder
from moorage.basis.client.raw_objects import RawObjects
from moorage.basis.client.watched_resources import resource_of
from moorage.errors import ClusterError

POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "nodeName": "n1"},
}
BROKEN = {**POD, "spec": {"containers": "none"}}
LOOSE = {**POD, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}}
MARK = {"kind": "Pod", "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
STATUS = {"kind": "Status", "metadata": {}, "message": "too old", "reason": "Expired", "code": 410}

LINES = {
    "added": {"type": "ADDED", "object": POD},
    "modified": {"object": POD, "type": "MODIFIED"},
    "deleted": {"type": "DELETED", "object": POD},
    "a bookmark": {"type": "BOOKMARK", "object": MARK},
    "an unknown type": {"type": "NEWS", "object": POD},
    "numbers for quantities": {"type": "ADDED", "object": LOOSE},
    "an object that cannot be read": {"type": "ADDED", "object": BROKEN},
    "an error": {"type": "ERROR", "object": STATUS},
    "no object": {"type": "ADDED"},
    "no type": {"object": POD},
    "a list": [POD],
}
PAGES = {
    "some": {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD, LOOSE]},
    "none": {"metadata": {"resourceVersion": "9"}, "items": []},
    "null": {"metadata": {"resourceVersion": "9"}, "items": None},
    "one that cannot be read": {"metadata": {"resourceVersion": "9"}, "items": [POD, BROKEN]},
    "no list": "pods",
}


def outcome(read, *args):
    try:
        return read(*args)
    except ClusterError as error:
        return str(error), error.status, error.reason


def both(ask, document):
    body = json.dumps(document).encode()
    told = [], []
    readers = (
        ObjectDecoder(resource_of(Pod), told[0].append),
        ObjectDecoder(resource_of(Pod), told[1].append, RawObjects()),
    )
    found = [outcome(getattr(reader, ask), body) for reader in readers]
    assert told[0] == told[1]
    return found


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_watch_lines(line):
    quick, careful = both("event", line)
    assert quick == careful


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_list_pages(page):
    quick, careful = both("page", page)
    assert quick == careful


DEEP = b"[" * 100_000 + b"]" * 100_000  # some releases of Python read thousands of levels


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        ("event", b'{"type": "ADDED", "object": {"metadata": {"name": "p"}, "status": %s}}' % DEEP),
        ("page", b'{"metadata": {"resourceVersion": "9"}, "items": [{"status": %s}]}' % DEEP),
    ],
)
def test_too_deep_nesting_is_a_server_error(ask, body):
    with pytest.raises(ClusterError, match="maximum recursion depth"):
        getattr(ObjectDecoder(resource_of(Pod), print), ask)(body)
