"""The file that keeps a cluster: what was answered is in it, whatever happens to the process or to the file's tail."""

import asyncio
import stat

import pytest

from moorage.apiserver.kinds import find_kind
from moorage.apiserver.opening import open_store
from moorage.apiserver.selecting import ALL
from moorage.apiserver.statuses import ApiError

CONFIGS = find_kind("configmaps")
NAMESPACES = find_kind("namespaces")


def config(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def names(store):
    return {record.name for record in store.all(CONFIGS)} - {"extension-apiserver-authentication"}


def bodies(store):
    return {(kind.qualified, record.key): record.body for kind in store._shelves for record in store.all(kind)}


def test_what_was_made_changed_and_deleted_is_found_again(tmp_path):
    store = open_store(tmp_path / "data")
    store.create(CONFIGS, "default", config("a", x="1"))
    store.create(CONFIGS, "default", config("b"))
    store.change(CONFIGS, "default", "a", lambda document: {**document, "data": {"x": "2"}})
    store.delete(CONFIGS, "default", "b")
    store.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    held, version = bodies(store), store.version
    store.close()
    again = open_store(tmp_path / "data")
    assert bodies(again) == held
    assert again.version > version
    assert again.create(CONFIGS, "shop", config("c")).version > version
    again.close()


def test_only_the_owner_can_read_the_file(tmp_path):
    store = open_store(tmp_path / "data")
    store.create(CONFIGS, "default", config("a"))
    asyncio.run(store.settle())
    files = sorted(tmp_path.iterdir())
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * len(files)
    store.close()


def test_versions_of_before_are_gone_and_none_comes_twice(tmp_path):
    seen = set()
    for _ in range(3):
        store = open_store(tmp_path / "data")
        seen.add(old := store.create(CONFIGS, "default", {**config(""), "metadata": {"generateName": "x"}}).version)
        seen.add(store.version)
        store.close()
    store = open_store(tmp_path / "data")
    assert len(seen) == 3
    assert store.version > max(seen)
    with pytest.raises(ApiError) as caught:
        store.watch(CONFIGS, ALL, str(old), print)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    store.close()
