"""Long responses in parts: the same bytes as if assembled, and never more than the client reads."""

import json

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import served
from moorage.api.schema.protobuf import PROTOBUF
from moorage.cluster.apiserver.http.lists import PIECE, ObjectList, encoded_list, into_pieces, object_list
from moorage.cluster.apiserver.schema.representations import JSON, YAML, encoded_as

CONFIG, PODS = served("configmaps"), served("pods")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
FORMS = {"objects": JSON, "a table": TABLE, "metadata": METADATA, "protobuf": PROTOBUF, "YAML": "application/yaml"}

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=12)
#: Where YAML has its rules: lines that begin or end with blanks, numbers, signs.
awkward = st.sampled_from(
    ["", " ", "\n", "a\n b\n", "\n\na", "- a", "a: b", "1", "yes", "|", "a\n\n\n", "\ta", "#", "'\"", "💧\n"]
)
values = st.dictionaries(texts | awkward, texts | awkward, max_size=3)
objects = st.builds(lambda data: {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": data}, values)


def listing_of(documents):
    records = [Record.of(CONFIG, document, 7) for document in documents]
    return object_list(CONFIG, {"resourceVersion": "7"}, records)


@pytest.mark.slow
@hypothesis_settings(max_examples=40, deadline=None)
@given(documents=st.lists(objects, max_size=3))
def test_a_list_in_parts_equals_the_list(documents):
    listing = listing_of(documents)
    whole = b"".join(listing)
    items = [{name: one[name] for name in ("metadata", "data")} for one in documents]
    head = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    assert json.loads(whole) == {**head, "items": items}
    assert b"".join(encoded_list(listing, JSON, pretty=True)) == msgspec.json.format(whole, indent=2)
    assert b"".join(encoded_list(listing, PROTOBUF)) == encoded_as(PROTOBUF, whole)
    text = b"".join(encoded_list(listing, YAML))
    assert yaml.safe_load(text) == {**head, "items": items}
    assert text == encoded_as(YAML, whole)


@given(parts=st.lists(st.sampled_from([b"", b"a", b"b" * (PIECE // 2), b"c" * PIECE, b"d" * (3 * PIECE + 1)]), max_size=6))
def test_pieces_contain_the_parts_and_none_is_long(parts):
    pieces = [bytes(piece) for piece in into_pieces(parts)]
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) <= 2 * PIECE for piece in pieces)


def test_large_objects_are_not_copied():
    (record,) = [Record.of(CONFIG, {"metadata": {"name": "c"}, "data": {"a": "x" * 100_000}}, 1)]
    parts = list(into_pieces(listing_of([record.document()])))
    assert sum(isinstance(part, memoryview) for part in parts) == 4


def fill(store, count):
    for i in range(count):
        metadata = {"name": f"c{i:05}", "namespace": "default", "annotations": {"text": "y" * 300}}
        store.adopt(CONFIG, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x" * 300}})


@pytest.mark.parametrize("accept", FORMS.values(), ids=FORMS)
def test_long_and_short_lists_are_complete(against_a_server, accept):
    async def test(client, store):
        fill(store, 300)
        answers = []
        for query in ("", "?limit=2"):
            url = f"{client.base}/api/v1/configmaps{query}"
            headers = {"Authorization": f"Bearer {client.token}", "Accept": accept}
            async with client.session.get(url, headers=headers) as response:
                body = await response.read()
                answers.append((response.status, "Content-Length" in response.headers, len(body) > PIECE))
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                if accept not in {PROTOBUF, "application/yaml"}:
                    found = json.loads(body)
                    assert len(found.get("items") or found["rows"]) == (2 if query else 300)
        assert answers == [(200, False, True), (200, True, False)]
        assert (await client.ask("GET", "/readyz"))[0] == 200  # over the same connection

    against_a_server(test)


@pytest.mark.slow
def test_a_list_shows_its_version_of_the_objects(against_a_server):
    """Its objects may change while the client reads it."""

    async def test(client, store):
        fill(store, 3000)
        url = f"{client.base}/api/v1/configmaps"
        async with client.session.get(url, headers={"Authorization": f"Bearer {client.token}"}) as response:
            await response.content.readany()
            for i in range(0, 3000, 2):
                store.delete(CONFIG, "default", f"c{i:05}")
            rest = await response.read()
        assert b'"c02998"' in rest
        assert (await client.ask("GET", "/api/v1/configmaps"))[1]["items"][0]["metadata"]["name"] == "c00001"

    against_a_server(test)


def test_an_error_within_a_list_closes_the_connection(against_a_server, monkeypatch, caplog):
    """The sent part cannot be taken back; the client must not take it for the complete list."""

    def broken():
        yield from ((b'"' + b"x" * 1000 + b'"',) for _ in range(100))
        raise LookupError("a bug")

    async def test(client, _):
        monkeypatch.setattr(
            "moorage.cluster.apiserver.http.requests.object_list",
            lambda kind, metadata, records: ObjectList({}, "items", broken),
        )
        with pytest.raises(Exception, match="payload is not completed"):
            await client.ask("GET", "/api/v1/configmaps")

    against_a_server(test)
    assert "a bug" in caplog.text
