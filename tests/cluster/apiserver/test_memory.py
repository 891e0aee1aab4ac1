"""The memory cost of watches and lists whose clients do not read, by the resident memory of a server process."""

import pytest

from benchmarks.watches import measure_watches

#: What is asked for, how many objects of which size, how many clients, over TLS?, as lists?, KiB for each client at most.
UNREAD = {
    "watches over large objects": ("configmaps", 8, 500_000, 40, True, False, 1024),
    "watches over many objects": ("pods", 2000, 0, 60, False, False, 512),
    "lists of large objects": ("configmaps", 8, 500_000, 40, False, True, 512),
}


@pytest.mark.slow
@pytest.mark.parametrize(("resource", "count", "size", "clients", "tls", "listed", "most_kib"), UNREAD.values(), ids=UNREAD)
def test_unread_responses_cost_little_memory(resource, count, size, clients, tls, listed, most_kib):
    found = measure_watches(resource, count, size, clients, plain=not tls, listed=listed, hold_s=1.0)
    assert found["kib_each"] < most_kib, found
