"""The page of the cluster's past, in a browser: what it says, how the time is narrowed, and that it follows."""

from datetime import UTC, datetime

import pytest

from tests.interfaces.web.clusters import pod_fields, snapshot
from tests.interfaces.web.lab_server import LabServer

pytestmark = pytest.mark.slow


def history(pending):
    at = [1_800_000_000.0 + second for second in range(600)]
    return {
        "now": at[-1],
        "began": at[0],
        "samples": {
            "at": at,
            "pending": [2] * 599 + [pending],
            "utilisation": {"cpu": [second / 1200 for second in range(600)], "memory": [0.25] * 600, "pods": [0.02] * 600},
        },
        "marks": [{"at": at[500], "text": "7 pods leave n1"}],
        "lanes": {
            "pod": ["default/waits", "default/<img src=x>", "default/old"],
            "owner": ["", "", ""],
            "state": ["backoff", "bound", "gone"],
            "arrived": [at[500], at[100], at[0]],
            "bound": [None, at[130], at[0]],
            "gone": [None, None, at[90]],
            "node": [None, "n1", "n1"],
            "tries": [2, 1, 1],
            "attempts": [[{"at": at[510]}, {"at": at[520]}], [{"at": at[130]}], []],
        },
    }


def test_the_past_is_shown_narrowed_and_followed(visit, text_of):
    server = LabServer(snapshot([], []))
    server.answers["GET /lab/v1/history"] = history(1)
    try:
        with visit.page(server.url + "#/time") as page:
            page.get_by_role("heading", name="1 pod pending; requested: cpu 50%, memory 25%, pods 2%.").wait_for()
            lanes = page.get_by_role("table", name="Lanes of pods").locator("tbody tr")
            assert [" ".join(text.split()) for text in lanes.all_inner_texts()] == [
                "default/waits backoff; waited 1m39s, 2 attempts",
                "default/<img src=x> bound on n1; waited 30s, 1 attempt",
                "default/old gone on n1; waited 0s, 1 attempt",
            ]
            assert lanes.nth(0).locator(".mark-try").count() == 2
            visit.shoot(page, "time")
            chart = page.get_by_role("img", name="Pending pods: now 1 pod; 7 pods leave n1")
            legend = page.locator(".chart-box").first.get_by_role("listitem")
            assert legend.all_inner_texts() == ["pending pods", "1 event: point at one"]
            box = chart.locator(".u-over").bounding_box()
            page.mouse.move(box["x"] + box["width"] * 500 / 599, box["y"] + 40)
            assert page.locator(".tip:visible").inner_text() == "08:08:20 · pending pods 2 · 7 pods leave n1"
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 40, steps=4)
            page.mouse.up()
            page.get_by_label("Time shown").get_by_role("button", name="Show all").wait_for()
            assert lanes.count() == 2  # the pod that went is before the time shown
            page.get_by_role("button", name="Show all").click()
            assert lanes.count() == 3
            page.get_by_role("slider", name="to").press("Home")
            assert [text.split()[0] for text in lanes.all_inner_texts()] == ["default/old"]
            server.answers["GET /lab/v1/history"] = history(3)
            server.push("delta", {"pods": {"set": [pod_fields("default/new")]}})
            page.get_by_role("heading", name="3 pods pending").wait_for()
            assert lanes.count() == 1  # the time shown stays
        with visit.page(server.url + "#/time", narrow=True, dark=True) as page:
            page.get_by_role("heading", name="3 pods pending").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            visit.shoot(page, "time-narrow")
    finally:
        server.close()


def at_moment(at):
    bound = at >= 1_800_000_300
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    return snapshot([{"name": "n1"}], [{"key": "default/web", "node": "n1" if bound else None}], at=stamp, notes=["as then"])


def test_the_map_of_a_moment_is_moved_and_runs(visit):
    server = LabServer(snapshot([], []))
    server.answers["GET /lab/v1/history"] = history(1)
    server.past = at_moment
    try:
        with visit.page(server.url + "#/time") as page:
            slider = page.get_by_role("slider", name="at", exact=True)
            slider.press("Home")
            page.get_by_role("heading", name="08:00:00: 1 pod pending, 0 on 1 node").wait_for()
            slider.press("End")
            page.get_by_role("heading", name="08:09:59: 0 pods pending, 1 on 1 node").wait_for()
            assert page.get_by_role("link", name="n1").count() == 1
            visit.shoot(page, "time-replay")
            page.get_by_role("slider", name="from").press("End")  # what is shown is what runs
            page.get_by_role("button", name="Play").press("Enter")
            page.get_by_role("button", name="Play").wait_for()
            assert page.locator(".lane .mark-moment").count() > 0
            page.get_by_role("button", name="Close").click()
            assert page.get_by_role("link", name="n1").count() == 0
    finally:
        server.close()
