"""Every live page, wide and light, narrow and dark: nothing is cut off, and everything that acts has a name."""

import json
from itertools import pairwise

import pytest

from moorage.interfaces.web.setup_route import setup_document
from tests.interfaces.web.clusters import large, snapshot
from tests.interfaces.web.lab_server import LabServer
from tests.interfaces.web.reports import document, printed
from tests.interfaces.web.test_live_time import history
from tests.live.server.test_on_embedded_server import a_scheduler

pytestmark = pytest.mark.slow

PAGES = {
    "": "pods are pending",
    "node/general-a1": "general-a1",
    "workload/default/Deployment/web": "Deployment/web",
    "pod/default/search-2": "default/search-2 is pending",
    "time": "pod pending",
    "if?ask=drain&nodes=worker-3": "What if",
    "compare?bRelease=1.35": "Compare two configurations",
    "setup": "The scheduler decides",
}
NAMELESS = """[...document.querySelectorAll('a, button, input, select, textarea, [tabindex="0"]')].filter(one => {
  const label = one.closest('label') ?? one.labels?.[0];
  return !(one.getAttribute('aria-label') || one.textContent.trim() || label?.textContent.trim() || one.title);
}).map(one => one.outerHTML)"""


@pytest.fixture(scope="module")
def server():
    names = document("pending")["answer"]["nodes"]
    nodes = [
        {"name": name, "zone": f"zone-{at % 3}", "labels": {"pool": "a-pool-with-a-long-name"}} for at, name in enumerate(names)
    ]
    pods = [
        {"key": f"default/web-{at}-7d9c5b4f6-x2k9{at}", "node": names[at % 8], "owner": "Deployment/web"} for at in range(20)
    ]
    pods += [{"key": f"default/search-{at}", "cause": "0/8 nodes are available: 8 Insufficient cpu."} for at in (2, 3)]
    server = LabServer(snapshot(nodes, pods, writable=True))
    kinds = {
        "drain": document("drain"),
        "compare": printed(*("compare", "-f", "examples/demo", "--b-release=1.35")),
        "explain": document("pending"),
    }
    server.answers |= {
        "GET /lab/v1/history": history(1),
        "GET /lab/v1/setup": setup_document(a_scheduler(), [], list),
        "GET /lab/v1/pods/default/search-2/explanation": document("pending"),
        "POST /lab/v1/questions": lambda: kinds[next(iter(server.asked[-1][1]["question"]))],
    }
    yield server
    server.close()


@pytest.mark.parametrize(("narrow", "dark"), [(False, False), (True, True)], ids=["wide and light", "narrow and dark"])
def test_every_page_fits_and_names_what_acts(narrow, dark, server, visit):
    with visit.page(server.url, narrow=narrow, dark=dark) as page:
        for path, heading in PAGES.items():
            page.evaluate("path => { location.hash = '#/' + path }", path)
            page.get_by_role("heading", level=1, name=heading).first.wait_for()
            if path.startswith(("if", "compare", "pod")):
                page.get_by_role("heading", name="What this rests on").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") == (390 if narrow else 1280), path
            assert page.get_by_role("main").count() == 1, path
            assert page.get_by_role("navigation", name="Pages").count() == 1
            assert page.evaluate(NAMELESS) == [], path
            levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
            assert all(after <= before + 1 for before, after in pairwise(levels)), (path, levels)
            visit.shoot(page, f"all-{path.partition('?')[0].replace('/', '-')}-{'narrow' if narrow else 'wide'}")
    assert {url.split("/")[2] for url in visit.asked if not url.startswith("data:")} == {f"127.0.0.1:{server.port}"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_axe_finds_nothing_on_any_page(narrow, dark, server, visit, axe):
    with visit.page(server.url, narrow=narrow, dark=dark) as page:
        for path, heading in PAGES.items():
            page.evaluate("path => { location.hash = '#/' + path }", path)
            page.get_by_role("heading", level=1, name=heading).first.wait_for()
            if path.startswith(("if", "compare", "pod")):
                page.get_by_role("heading", name="What this rests on").wait_for()
            assert axe(page) == [], path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_on_the_map_of_many_nodes(dark, visit, axe):
    server = LabServer(large(nodes=400, pods_per_node=2, pending=40))
    try:
        with visit.page(server.url, dark=dark) as page:
            page.get_by_role("listbox").wait_for()
            assert axe(page) == []
            page.get_by_role("listbox").focus()
            page.keyboard.press("ArrowRight")
            assert axe(page) == []
            page.get_by_role("button", name="Show as table").click()
            assert axe(page) == []
    finally:
        server.close()


SELECTED = {"labels": {"pool": "general"}, "terms": [[["zone", "In", ["a", "b"]], ["spot", "DoesNotExist", []]]]}


def test_a_node_says_who_selects_it_and_a_pod_what_was_recorded(server, visit):
    nodes = [{"name": "n1", "labels": {"pool": "general", "zone": "a"}}, {"name": "n2", "labels": {"pool": "compute"}}]
    told = "0/2 nodes are available: 2 Insufficient memory."
    pods = [{"key": f"shop/web-{at}", "node": "n1", "owner": "Deployment/web"} for at in range(3)]
    pods += [{"key": "default/search-2", "cause": "0/2 nodes are available: 2 Insufficient cpu."}]
    data = snapshot(nodes, pods)
    data["pods"]["requires"] = {"known": [json.dumps(SELECTED)], "index": [0, 1, 3], "value": [0, 0, 0]}
    data["pods"]["recorded"] = {"known": [told], "index": [3], "value": [0]}
    own = LabServer(data)
    own.answers |= {
        "GET /lab/v1/pods/default/search-2/explanation": document("pending"),
        "POST /lab/v1/questions": document("pending"),
    }
    try:
        with visit.page(own.url + "#/node/n1") as page:
            row = page.get_by_role("table", name="Who selects it").locator("tbody tr")
            assert " ".join(row.inner_text().split()) == (
                "pool=general and zone in a, b and spot is absent Deployment/web 3 2 1"
            )
            page.goto(own.url + "#/node/n2")
            page.get_by_role("heading", name="n2", level=1).wait_for()
            assert page.get_by_role("table", name="Who selects it").count() == 0
            page.goto(own.url + "#/workload/shop/Deployment/web")
            page.get_by_role("heading", name="Nodes that it selects").wait_for()
            page.goto(own.url + "#/")
            assert "another cause was recorded" in page.get_by_role("link", name="default/search-2").inner_text()
            page.goto(own.url + "#/pod/default/search-2")
            page.get_by_role("heading", name="Recorded in the cluster").wait_for()
            assert page.get_by_text(told).count() == 1
    finally:
        own.close()


def test_nodes_and_workloads_lead_to_each_other_and_to_questions(server, visit):
    with visit.page(server.url + "#/node/general-a1") as page:
        page.get_by_text("2 pending pods of 2 would have enough room here, by requests alone.").wait_for()
        page.get_by_role("link", name="Deployment/web").first.click()
        page.get_by_role("heading", name="Deployment/web", level=1).wait_for()
        nodes = page.get_by_role("table", name="Pods by node").locator("tbody tr")
        assert [row.split() for row in nodes.all_inner_texts()][:2] == [["general-a1", "3"], ["general-a2", "3"]]
        zones = page.get_by_role("table", name="Pods by zone").locator("tbody tr")
        assert sum(int(row.split()[1]) for row in zones.all_inner_texts()) == 20
        page.get_by_role("link", name="Scale it").click()
        page.get_by_role("heading", name="What if").wait_for()
        assert page.get_by_role("combobox", name="Workload").input_value() == "deployment/default/web"
        page.goto(server.url + "#/workload/default/Deployment/none")
        page.get_by_role("heading", name="Deployment/none has no pod in default.").wait_for()
