"""Deletion of a collection while other clients delete its objects, in the worker's thread and on the store's own."""

import threading
import time

import pytest

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import served
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.limits import OBJECTS
from moorage.cluster.apiserver.http.requests import serve
from moorage.rules.store.detached_store import DetachedStore

CONFIG_MAPS = served("configmaps")
PATH = "/api/v1/namespaces/default/configmaps"
ADMIN = User("admin", ("system:masters",))


def filled(store, count=3 * OBJECTS):
    for at in range(count):
        metadata = {"name": f"c-{at:04}", "labels": {"half": str(at % 2)}}
        store.create(CONFIG_MAPS, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    return store


def delete_collection(store, **query):
    request = HTTPRequest("DELETE", PATH, query, "", "application/json", b"", ADMIN, "tests")
    return serve(store, Authenticator({}), Authorizer(store), request, find_target(PATH))


def left(store):
    return [record.name for record in store.all(CONFIG_MAPS)]


@pytest.mark.parametrize("every", [1, 2, 7])
def test_objects_that_others_delete_meanwhile_are_passed_over(store, every):
    filled(store)
    calls = []

    def ask(function):
        """Call a function on the store's thread, where other clients' requests come between."""
        calls.append(function)
        if len(calls) % every == 0 and (names := left(store)):
            store.delete(CONFIG_MAPS, "default", names[-1])
        return function()

    response = delete_collection(DetachedStore(store, ask))
    assert response.code == 200
    assert left(store) == []


def test_an_object_that_was_made_again_stays(store):
    filled(store, 4)
    again = []

    def ask(function):
        found = function()
        if not again:
            again.append(True)
            store.delete(CONFIG_MAPS, "default", "c-0002")
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c-0002"}}
            store.create(CONFIG_MAPS, "default", made)
        return found

    delete_collection(DetachedStore(store, ask))
    assert left(store) == ["c-0002"]


def test_only_selected_objects_are_deleted_while_the_keys_change(store):
    """The list is made on the store's thread: in the worker's, keys that others delete meanwhile shift those that follow."""
    filled(store, 400)
    store_lock, stops = threading.Lock(), threading.Event()

    def churn():
        for at in range(0, 400, 2):
            with store_lock:
                store.delete(CONFIG_MAPS, "default", f"c-{at:04}")
            if stops.is_set():
                return
            time.sleep(0)

    def ask(function):
        with store_lock:
            return function()

    other = threading.Thread(target=churn)
    other.start()
    try:
        assert delete_collection(DetachedStore(store, ask), labelSelector="half=1").code == 200
    finally:
        stops.set()
        other.join()
    assert not [name for name in left(store) if int(name[2:]) % 2]
