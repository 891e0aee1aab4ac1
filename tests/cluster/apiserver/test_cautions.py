"""Warning headers: truncated like kube-apiserver's, and never more than Python's http.client accepts."""

import http.client
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.apiserver.http import responses as cautions
from moorage.cluster.apiserver.http.responses import MAX_TOTAL, MAX_WARNING, MAX_WARNINGS, warning_headers


def plain(texts, total=MAX_TOTAL, each=MAX_WARNING):
    """Return what kube-apiserver sends for these texts, added one by one."""
    seen, sent, whole, cutting = [], [], 0, False
    for text in texts:
        if (cutting and sum(map(len, sent)) >= total) or not text or text in seen:
            continue
        seen.append(text)
        whole += len(text)
        if whole <= total:
            sent.append(text)
        elif cutting:
            sent.append(text[:each])
        else:
            cutting, sent = True, [one[:each] for one in seen]
    return [f'299 - "{text}"' for text in sent]


@pytest.mark.parametrize("limits", [(25, 5), (MAX_TOTAL, MAX_WARNING)])
@given(texts=st.lists(st.text("añ", max_size=12).map(lambda text: text * 40) | st.text("bc", max_size=9), max_size=30))
def test_warnings_are_truncated_like_kube_apiservers(limits, texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cautions, "MAX_TOTAL", limits[0])
        patch.setattr(cautions, "MAX_WARNING", limits[1])
        assert warning_headers(texts) == plain(texts, *limits)


CASES = {
    "nothing": ([], []),
    "twice the same": (["a", "b", "a"], ['299 - "a"', '299 - "b"']),
    "an empty text": (["", "a"], ['299 - "a"']),
    "quotes": (['say "a\\b"'], ['299 - "say \\"a\\\\b\\""']),
    "a line's end": (["a\r\nX-Evil: 1", "b"], ['299 - "b"']),
    "other control characters": (["\x7f", "\x85", "\0", "b"], ['299 - "b"']),
    "half a character": (["\ud800", "b"], ['299 - "b"']),
    "as long as may be": (["a" * MAX_TOTAL], [f'299 - "{"a" * MAX_TOTAL}"']),
    "longer than may be": (["a" * (MAX_TOTAL + 1)], [f'299 - "{"a" * MAX_WARNING}"']),
}


@pytest.mark.parametrize(("texts", "headers"), CASES.values(), ids=CASES)
def test_a_warning_is_one_header_line(texts, headers):
    assert warning_headers(texts) == headers


def test_the_number_of_warnings_is_limited():
    assert warning_headers(map(str, range(1000))) == [f'299 - "{i}"' for i in range(MAX_WARNINGS)]


@pytest.mark.parametrize("code", [201, 422])
def test_pythons_http_client_accepts_a_response_with_too_many_warnings(server_in_a_thread, new_store, token, code):
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a" if code == 201 else "A_"}}
    document |= {f"unknown{i}": 1 for i in range(500)}
    with server_in_a_thread(new_store()) as port:
        client = http.client.HTTPConnection("127.0.0.1", port)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        client.request("POST", "/api/v1/namespaces/default/configmaps", json.dumps(document), headers)
        answer = client.getresponse()
        assert answer.status == code
        assert answer.headers.get_all("Warning") == [f'299 - "unknown field \\"unknown{i}\\""' for i in range(MAX_WARNINGS)]
        client.close()
