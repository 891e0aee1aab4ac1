"""The page of the scheduler's setup, in a browser, with the document that the server makes."""

import pytest

from moorage.interfaces.web.setup_route import setup_document
from tests.interfaces.web.clusters import snapshot
from tests.interfaces.web.lab_server import LabServer
from tests.live.server.test_on_embedded_server import a_scheduler

pytestmark = pytest.mark.slow


def test_the_setup_shows_plugins_in_order_with_weights_gates_and_times(visit, text_of):
    metric = {"plugin": "NodeResourcesFit", "extensionPoint": "Filter", "calls": 12, "seconds": 0.5}
    document = setup_document(a_scheduler(), [], lambda: [metric])
    server = LabServer(snapshot([], []))
    server.answers["GET /lab/v1/setup"] = lambda: document
    try:
        with visit.page(server.url + "#/setup", narrow=True) as page:
            page.get_by_role("heading", name="The scheduler decides as kube-scheduler 1.37, with 1 profile.").wait_for()
            assert page.get_by_role("link", name="Setup").get_attribute("aria-current") == "page"
            plugins = page.get_by_role("table", name="Plugins of default-scheduler").locator("tbody tr")
            ordered = {point: names for point, *names in (row.split() for row in plugins.all_inner_texts())}
            assert ordered == document["profiles"][0]["points"]
            weights = page.get_by_role("table", name="Weights of default-scheduler").locator("tbody tr")
            shown = [row.split() for row in weights.all_inner_texts()]
            assert shown == [[name, str(weight)] for name, weight in document["profiles"][0]["weights"].items()]
            assert "NodeResourcesFit Filter 500 ms, 12 calls" in text_of(page)
            gate = document["featureGates"][0]
            state = "enabled" if gate["enabled"] else "disabled"
            assert page.get_by_role("row", name=f"{gate['name']} {state}", exact=True).count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            over = page.locator(".table-box").evaluate_all("all => all.map(one => one.scrollWidth - one.clientWidth)")
            assert over[1:] == [0, 0, 0]  # weights, times and states are in sight on a phone
            visit.shoot(page, "setup")
            document["release"] = "<img src=x>"
            server.push("reset", {})
            page.get_by_role("heading", name="kube-scheduler <img src=x>").wait_for()
    finally:
        server.close()


def test_recorded_decisions_are_shown_with_their_differences(visit, text_of):
    difference = {
        "at": "2026-11-24T14:03:00Z",
        "pod": "shop/web-1",
        "node": "n1",
        "ours": "n2",
        "plugins": ["NodeResourcesFit"],
    }
    agreement = {"compared": 10_000, "share": 0.9999, "bindings": {"same": 9_000, "different": 1}, "failures": {"same": 999}}
    agreement["uncompared"] = {"not judged: too many decisions differ at first to look into each": 50, "was never seen": 7}
    recorded = {"log": "log", "agreement": {**agreement, "plugins": {"NodeResourcesFit": 1}}, "differences": [difference]}
    empty = {"log": "other", "agreement": {}, "differences": []}
    server = LabServer(snapshot([{"name": "n1"}, {"name": "n2"}], []))
    server.answers["GET /lab/v1/setup"] = {**setup_document(a_scheduler(), [], list), "recordings": [recorded, empty]}
    try:
        with visit.page(server.url + "#/setup") as page:
            page.get_by_text("Moorage agrees with 99.99% of 10,050 decisions, 50 of them by estimate.").wait_for()
            assert (
                "Not compared: 50: not judged: too many decisions differ at first to look into each; 7: was never seen."
                in text_of(page)
            )
            verdicts = page.get_by_role("table", name="Recorded decisions by verdict").locator("tbody tr")
            assert [row.split("\t") for row in verdicts.all_inner_texts()] == [
                ["the same node, or the same reasons", "9,000", "999"], ["different", "1", "0"],
            ]  # fmt: skip
            assert (
                "moorage record cut -f log --pod shop/web-1 --at 2026-11-24T14:03:00Z --beside n1 -o case.json.gz"
                in text_of(page)
            )
            assert page.get_by_text("No decision of other was compared.").count() == 1
            visit.shoot(page, "setup-recorded")
    finally:
        server.close()


def test_a_server_that_answers_no_questions_offers_none(visit):
    server = LabServer(snapshot([], [], asks=False))
    server.answers["GET /lab/v1/setup"] = setup_document(a_scheduler(), [])
    try:
        with visit.page(server.url + "#/setup") as page:
            page.get_by_role("heading", name="Feature gates").wait_for()
            assert page.get_by_role("heading", name="Validate a configuration").count() == 0
            assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == [
                "Moorage", "Map", "Atlas", "Time", "Setup",
            ]  # fmt: skip
    finally:
        server.close()
