"""The live page in a browser, against a small server with data of the test: map, pod, deltas, loss of the server, refusal."""

import pytest

from tests.interfaces.web.clusters import large, node_fields, pod_fields, snapshot
from tests.interfaces.web.lab_server import LabServer
from tests.interfaces.web.reports import document
from tests.ports import reserve_port

pytestmark = pytest.mark.slow

HOSTILE = '<img src=x onerror=alert(1)>"&'
CAUSE = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: none"
NODES = [
    {"name": "n1", "zone": "east", "labels": {"disk": "ssd"}},
    {"name": "n2", "zone": "west", "cordoned": True},
    {"name": "n3", "zone": "west", "ready": False},
]
PODS = [
    {"key": "default/web-1", "node": "n1", "owner": "Deployment/web"},
    {"key": "default/web-2", "cause": CAUSE, "attempts": 3},
    {"key": f"default/{HOSTILE}", "node": "n2"},
]
# What Chromium itself says of a server that is away or that refuses.
NETWORK = ("Failed to load resource", "Event")


@pytest.fixture
def lab():
    servers = []

    def start(data=None, port=0):
        servers.append(LabServer(data or snapshot(NODES, PODS), port))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_the_map_says_what_is_pending_and_where_room_is(lab, visit, text_of):
    server = lab()
    with visit.page(server.url) as page:
        page.get_by_role("heading", name="1 of 3 nodes not ready (n3) · 1 pod is pending; 1 of 3 nodes take pods.").wait_for()
        assert page.get_by_role("link", name="n1 50% of memory, cpu 25%, 1 pod").count() == 1
        assert page.get_by_role("link", name="n2 50% of memory, cpu 25%, 1 pod ⊘ cordoned").count() == 1
        assert page.get_by_role("link", name="n3 50% of memory, cpu 25%, 0 pods ✗ not ready").count() == 1
        tray = page.get_by_role("region", name="Pending pods")
        assert "1 pod: 2 Insufficient cpu · 1 node(s) were unschedulable" in tray.inner_text()
        assert page.get_by_role("status").filter(has_text="live").count() == 1
        visit.shoot(page, "map")
        page.get_by_role("button", name="Show as table").click()
        assert page.get_by_role("table", name="Nodes").locator("tbody tr").count() == 3
        page.get_by_role("searchbox").fill("ssd")
        rows = page.get_by_role("table", name="Nodes").locator("tbody tr")
        rows.nth(1).wait_for(state="detached")
        assert rows.count() == 1
        page.get_by_role("combobox", name="Group by").select_option("label:disk")
        page.wait_for_url("**by=label**")
    assert {url.split("/")[2] for url in visit.asked if not url.startswith("data:")} == {f"127.0.0.1:{server.port}"}


def test_a_delta_moves_a_pod_from_the_tray_to_its_node(lab, visit):
    server = lab()
    with visit.page(server.url) as page:
        page.get_by_role("link", name="default/web-2 pending").wait_for()
        server.push(
            "delta", {"pods": {"set": [pod_fields("default/web-2", "n1")]}, "nodes": {"set": [node_fields("n1", zone="east")]}}
        )
        page.get_by_role("heading", name="1 of 3 nodes not ready (n3); 1 of 3 nodes take pods.").wait_for()
        page.get_by_role("link", name="n1 50% of memory, cpu 25%, 2 pods").wait_for()
        server.push("delta", {"nodes": {"set": [node_fields("n4", zone="north")], "gone": ["n3"]}})
        page.get_by_role("group", name="north").wait_for()
        assert page.get_by_role("link", name="n3 50%").count() == 0


def test_a_server_that_goes_and_comes_back_is_seen(lab, visit):
    server = lab(port=reserve_port())
    with visit.page(server.url, allow=NETWORK) as page:
        page.get_by_text("live", exact=True).wait_for()
        server.close()
        page.get_by_text("server away since").wait_for()
        assert "grayscale" in page.locator("#main").evaluate("one => getComputedStyle(one).filter")
        # The new server knows nothing of the old one's events: the page loads the cluster again.
        lab(snapshot([*NODES, {"name": "n9", "zone": "east"}], PODS), server.port)
        page.get_by_text("live", exact=True).wait_for()
        assert page.locator("#main").evaluate("one => getComputedStyle(one).filter") == "none"


def test_the_title_is_the_incident_and_nothing_says_that_all_is_well(lab, visit, text_of):
    nodes = [{"name": f"{zone}{at}", "zone": zone} for zone in "ac" for at in range(2)]
    down = [{"name": f"b{at}", "zone": "b", "ready": False, "unready": "unreachable", "since": 1735689600.0} for at in range(2)]
    lacking = [{"key": "shop/Deployment/web", "wanted": 5, "existing": 2, "ready": 2, "why": "exceeded quota: few"}]
    server = lab(snapshot([*nodes, *down], [{"key": "d/x", "node": "b0", "owner": "Deployment/x"}], lacking=lacking))
    with visit.page(server.url) as page:
        page.get_by_role("heading", name="2 of 6 nodes unreachable (all of b) since 01-01 00:00 · 1 pod").wait_for()
        tray = page.get_by_role("region", name="Pending pods").inner_text()
        assert "✓" not in tray
        assert "shop/Deployment/web: wants 5, has 2, 2 ready · exceeded quota: few" in tray
        visit.shoot(page, "incident")
        up = [node_fields(one["name"], zone="b") for one in down]
        server.push("delta", {"nodes": {"set": up}})
        page.get_by_role("heading", name="shop/Deployment/web lacks 3 of 5 pods; all 6 nodes take pods.").wait_for()
        assert "✓" not in page.get_by_role("region", name="Pending pods").inner_text()
        server.push("delta", {"lacking": []})
        page.get_by_role("heading", name="No pod is pending; all 6 nodes take pods.").wait_for()
        assert "✓ No pod is pending" in page.get_by_role("region", name="Pending pods").inner_text()


def test_a_reset_loads_the_cluster_again(lab, visit):
    server = lab()
    with visit.page(server.url) as page:
        page.get_by_role("link", name="n1 50%").wait_for()
        server.snapshot = snapshot([{"name": "other"}], [])
        server.push("reset", {})
        page.get_by_role("link", name="other 50%").wait_for()


def test_a_token_of_the_link_is_sent_once_and_leaves_the_address(lab, visit):
    server = lab()
    with visit.page(server.url + "#token=abc%2F1") as page:
        page.get_by_role("link", name="n1 50%").wait_for()
        assert "token" not in page.url
    assert server.asked == [("/lab/v1/session", {"token": "abc/1"})]


def test_a_link_that_was_used_opens_the_session_that_it_began(lab, visit):
    server = lab()
    server.status_of_session = 401
    with visit.page(server.url + "#token=used", allow=NETWORK) as page:
        page.get_by_role("link", name="n1 50%").wait_for()


def test_without_a_session_the_page_says_how_to_get_a_link(lab, visit, text_of):
    server = lab()
    server.status_of_snapshot = 401
    with visit.page(server.url, allow=NETWORK) as page:
        page.get_by_role("heading", name="This page needs a link with a token.").wait_for()
        assert "moorage up prints a link" in text_of(page)


def test_a_node_shows_its_pods_and_hostile_names_stay_text(lab, visit, text_of):
    server = lab()
    with visit.page(server.url) as page:
        page.get_by_role("link", name="n2 50%").click()
        page.get_by_role("heading", name="n2").wait_for()
        assert f"default/{HOSTILE}" in text_of(page)
        assert page.locator("img").count() == 0
        visit.shoot(page, "node")


# -- a pod ----------------------------------------------------------------------------------------------------------------


def test_a_pod_is_explained_and_a_change_tried(lab, visit, text_of):
    server = lab(snapshot([{"name": "general-c2"}], [{"key": "default/search-2", "attempts": 2}]))
    pending = document("pending")
    placed = {
        **pending,
        "before": pending,
        "summary": "default/search-2 is on general-c2.",
        "answer": {**pending["answer"], "outcome": "placed"},
    }
    server.answers["GET /lab/v1/pods/default/search-2/explanation"] = {"_status": 202, "id": "q1"}
    state = {"state": "running", "progress": {"text": "looking", "done": 1, "total": 9}}
    server.answers["GET /lab/v1/questions/q1"] = lambda: state
    # Without a search the cause is known at once.
    cause = {**pending, "answer": {**pending["answer"], "changes": []}}
    server.answers["POST /lab/v1/questions"] = lambda: placed if "changes" in server.asked[-1][1] else cause
    with visit.page(server.url + "#/pod/default/search-2", allow=NETWORK) as page:
        page.get_by_role("heading", name=pending["summary"]).wait_for()
        page.get_by_text("Looking for changes that would place the pod … looking").wait_for()
        assert page.get_by_role("button", name="Try").count() == 0
        state = {"state": "done", "answer": pending}
        page.get_by_role("button", name="Try").first.click()
        page.get_by_text("default/search-2 is on general-c2.").wait_for()
        visit.shoot(page, "pod")
        assert "before ✗ pending after ✓ placed" in text_of(page)
        server.push("delta", {"pods": {"set": [pod_fields("default/search-2", "general-c2")]}})
        page.get_by_text("The pod has changed since this answer.").wait_for()
    path, body = server.asked[-1]
    assert (path, body["question"]) == ("/lab/v1/questions", {"explain": "default/search-2"})
    assert body["changes"] == pending["answer"]["changes"][0]["atoms"]


def test_a_cause_stands_while_the_search_for_changes_fails_or_is_cancelled(lab, visit):
    server = lab(snapshot([{"name": "general-c2"}], [{"key": "default/search-2", "attempts": 2}]))
    pending = document("pending")
    path = "GET /lab/v1/pods/default/search-2/explanation"
    server.answers[path] = {"_status": 422, "kind": "Status", "message": "the search cannot run"}
    server.answers["POST /lab/v1/questions"] = {**pending, "answer": {**pending["answer"], "changes": []}}
    with visit.page(server.url + "#/pod/default/search-2", allow=NETWORK) as page:
        page.get_by_role("heading", name=pending["summary"]).wait_for()
        page.get_by_text("the search cannot run").wait_for()
        server.answers[path] = {"_status": 202, "id": "q7"}
        server.answers["GET /lab/v1/questions/q7"] = {"state": "running"}
        page.get_by_role("button", name="Ask again").click()
        with page.expect_event("requestfinished", lambda request: request.method == "DELETE"):
            page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Ask", exact=True).wait_for()
        assert page.get_by_role("heading", name=pending["summary"]).count() == 1
    assert ("DELETE /lab/v1/questions/q7", None) in server.asked


def test_another_pod_does_not_stand_over_the_last_answer(lab, visit):
    server = lab()
    server.answers["GET /lab/v1/pods/default/web-1/explanation"] = document("placed")
    server.answers["GET /lab/v1/pods/default/web-2/explanation"] = {"_status": 202, "id": "q1"}
    server.answers["GET /lab/v1/questions/q1"] = {"state": "running"}
    with visit.page(server.url + "#/pod/default/web-1", allow=NETWORK) as page:
        page.get_by_role("heading", level=1).wait_for()
        page.goto(server.url + "#/pod/default/web-2")
        page.get_by_text("Explaining default/web-2").wait_for()
        assert page.get_by_role("heading", level=1).count() == 0


def test_a_question_that_fails_says_why_and_one_that_runs_can_be_cancelled(lab, visit):
    server = lab()
    path = "GET /lab/v1/pods/default/web-1/explanation"
    server.answers[path] = {"_status": 422, "kind": "Status", "message": "the pod cannot be read"}
    with visit.page(server.url + "#/pod/default/web-1", allow=NETWORK) as page:
        page.get_by_text("the pod cannot be read").wait_for()
        server.answers[path] = {"_status": 202, "id": "q7"}
        server.answers["GET /lab/v1/questions/q7"] = {"state": "running"}
        page.get_by_role("button", name="Ask again").click()
        with page.expect_event("requestfinished", lambda request: request.method == "DELETE"):
            page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Ask", exact=True).wait_for()
    assert ("DELETE /lab/v1/questions/q7", None) in server.asked


# -- size -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def much():
    return large()


def test_many_nodes_are_tiles_with_names_and_a_path_by_keyboard(lab, visit, much):
    server = lab(much)
    nodes = len(much["nodes"]["name"])
    server.answers["GET /lab/v1/verdicts/load/wait-0"] = {
        "pod": "load/wait-0",
        "verdicts": [-1 if at == 3 else at % 2 for at in range(nodes)],
        "reasons": [{"plugin": "NodeResourcesFit", "text": "Insufficient cpu"}, {"plugin": "TaintToleration", "text": "taint"}],
    }
    with visit.page(server.url, allow=NETWORK) as page:
        tiles = page.get_by_role("listbox", name="5,000 nodes")
        tiles.focus()
        assert (
            tiles.get_by_role("option")
            .get_attribute("aria-label")
            .startswith("node-0000: cpu 0%, memory 0%, 10 pods, cordoned")
        )
        page.keyboard.press("ArrowRight")
        assert tiles.get_by_role("option").get_attribute("aria-label").startswith("node-0003:")
        page.keyboard.press("End")
        assert tiles.get_by_role("option").get_attribute("aria-posinset") == str(nodes)
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        page.get_by_role("link", name="load/wait-0 pending").focus()
        page.get_by_text("fits: 1 node").wait_for()
        page.get_by_text("refused by NodeResourcesFit: 2,500 nodes").wait_for()
        assert tiles.get_by_role("option").get_attribute("aria-label").endswith("the pod fits")
        visit.shoot(page, "map-large")
        page.get_by_role("button", name="Show 192 more").click()
        page.get_by_role("link", name="load/wait-107 pending").wait_for()
        tiles.focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="node-0003").wait_for()


def test_a_large_map_and_its_deltas_are_quick(lab, visit, much):
    # CPU time of the page's main thread: on a busy machine the clock says little.
    server = lab(much)
    with visit.page("about:blank", fresh=True) as page:
        probe = page.context.new_cdp_session(page)
        probe.send("Performance.enable", {"timeDomain": "threadTicks"})

        def used():
            return {one["name"]: one["value"] for one in probe.send("Performance.getMetrics")["metrics"]}

        page.goto(server.url)
        page.get_by_role("listbox").wait_for()
        first = used()
        assert first["TaskDuration"] < 1.5
        assert first["JSHeapUsedSize"] < 300e6
        page.get_by_text("live", exact=True).wait_for()
        page.wait_for_timeout(200)
        before, frames = used()["TaskDuration"], 8
        for frame in range(frames):
            bound = [pod_fields(f"load/new-{frame}-{at}", f"node-{frame * 250 + at:04}") for at in range(250)]
            server.push("delta", {"pods": {"set": bound}})
            page.wait_for_timeout(100)
        assert (used()["TaskDuration"] - before) / frames < 0.05
