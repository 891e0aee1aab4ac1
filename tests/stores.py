"""A store of objects with a stopped clock, and the kinds that tests use most."""

import random

import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.rules.store.store import Store


class Clock:
    now = 1_750_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    return Store(clock, random.Random(7), b"a key for tests")


@pytest.fixture
def pods():
    return find_kind("pods")


@pytest.fixture
def nodes():
    return find_kind("nodes")
