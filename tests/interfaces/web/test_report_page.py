"""The report file in a browser: opened from disk with the network off, it says what the command says."""

import pytest

from tests.interfaces.web.clusters import snapshot
from tests.interfaces.web.reports import QUESTIONS, document, printed, renamed, report

pytestmark = pytest.mark.slow

HOSTILE = '<img src=x onerror="document.title=1">"\'&</script><script>alert(1)</script>\u202egnp.exe'
SHOWN = HOSTILE.replace("\u202e", "\\u202e")


def names_in(name, answer):
    """Return the names of pods and nodes that the page of an answer shows."""
    match name:
        case "pending" | "placed":
            return [answer["nodes"][at] for group in answer["groups"] for at in group["nodes"][:4]] + [
                step["plugin"] for step in answer["funnel"]
            ]
        case "drain":
            return [pod["pod"] for pod in answer["pods"]] + [error for node in answer["nodes"] for error in node["errors"]]
        case "capacity":
            return [*answer["perNode"], answer["message"]]
        case "plan":
            return [
                *answer["remove"],
                *answer["blocked"],
                *(one["text"] for found in answer["blocked"].values() for one in found),
            ]
        case "survive":
            return [one["lost"] for one in answer["failures"]] + answer["fix"]["commands"] + answer["pendingBefore"]
        case "compare":
            return [
                *answer["newPending"],
                *(gate["text"] for gate in answer["gates"]),
                answer["a"]["name"],
                answer["b"]["name"],
            ]
        case _:
            return [cause["message"] for cause in answer["pending"]] + [shape["example"] for shape in answer["mix"]]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_says_what_the_document_says(name, visit, tmp_path, text_of):
    found = document(name)
    file = report(tmp_path / "report.html", found)
    with visit.page(file.as_uri(), offline=True) as page:
        assert page.get_by_role("heading", level=1).inner_text().split() == found["summary"].split()
        assert page.title() == found["summary"]
        text = text_of(page)
        for wanted in [
            *names_in(name, found["answer"]),
            *found["input"]["notes"],
            *(one["value"] for one in found["assumptions"]),
        ]:
            assert " ".join(wanted.split()) in text
        visit.shoot(page, f"report-{name}")
        page.emulate_media(color_scheme="dark")
        visit.shoot(page, f"report-{name}-dark")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        visit.shoot(page, f"report-{name}-narrow")
    assert visit.asked == {file.as_uri()} | {url for url in visit.asked if url.startswith("data:")}


@pytest.mark.parametrize("name", ["pending", "drain"])
def test_hostile_names_stay_text(name, visit, tmp_path, text_of):
    old = {"pending": "general-a1", "drain": "web-6d5f"}[name]
    file = report(tmp_path / "report.html", renamed(document(name), old, HOSTILE))
    with visit.page(file.as_uri(), offline=True) as page:
        assert " ".join(SHOWN.split()) in text_of(page)
        assert page.locator("img, #app script").count() == 0
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_several_pods_stand_below_each_other(visit, tmp_path):
    documents = [document("placed"), document("pending"), document("placed")]
    file = report(tmp_path / "report.html", {"kind": "List", "items": documents})
    with visit.page(file.as_uri(), offline=True) as page:
        assert [one.inner_text() for one in page.get_by_role("heading", level=1).all()] == [one["summary"] for one in documents]
        marks = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
        assert len(marks) == len(set(marks))


def test_the_map_of_a_report_shows_how_nodes_answer_the_pod(visit, tmp_path):
    nodes = [{"name": name, "zone": "east"} for name in document("pending")["answer"]["nodes"]]
    cluster = snapshot(nodes, [{"key": "default/search-0", "node": "general-a1"}])
    file = report(tmp_path / "report.html", document("pending"), snapshot=cluster)
    with visit.page(file.as_uri(), offline=True) as page:
        east = page.get_by_role("group", name="east")
        assert east.locator("[data-node]").count() == len(nodes)
        east.get_by_title("general-a1: cpu 25%, memory 50%, 1 pod, refuses the pod: InterPodAffinity").wait_for()
        assert page.get_by_text("refused by NodeAffinity: 3 nodes").count() == 1


def test_a_document_of_a_later_release_is_listed(visit, tmp_path, text_of):
    file = report(tmp_path / "report.html", {**document("survive"), "kind": "Omen", "answer": {"omens": [{"bird": "raven"}]}})
    with visit.page(file.as_uri(), offline=True) as page:
        assert "raven" in text_of(page)


def test_a_part_that_cannot_be_shown_says_so_and_leaves_the_rest(visit, tmp_path, text_of):
    file = report(tmp_path / "report.html", {**document("survive"), "answer": {"survives": True}})
    with visit.page(file.as_uri(), offline=True) as page:
        page.get_by_role("alert").filter(has_text="this part cannot be shown").wait_for()
        assert document("survive")["input"]["notes"][0] in text_of(page)


def test_paper_has_the_answer_and_no_buttons(visit, tmp_path, text_of):
    file = report(tmp_path / "report.html", document("pending"))
    with visit.page(file.as_uri(), offline=True, dark=True) as page:
        folded = page.locator("details:not([open]) > :not(summary)").first
        assert not folded.is_visible()
        page.emulate_media(media="print")
        assert folded.is_visible()
        assert page.get_by_role("button").count() == 0
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(27, 31, 36)"
        assert document("pending")["answer"]["message"] in text_of(page)
        assert page.pdf().startswith(b"%PDF")


def test_a_keyboard_reaches_commands_and_alternatives(visit, tmp_path):
    file = report(tmp_path / "report.html", document("pending"))
    with visit.page(file.as_uri(), offline=True) as page:
        reached = []
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText")
            )
            if "more change" in (reached[-1] or "") or (reached[-1] or "").startswith("Command"):
                page.keyboard.press("Enter")
        for change in document("pending")["answer"]["changes"]:
            for command in change["commands"]:
                assert f"Copy: {command}" in reached
        assert any("equal alternative" in (one or "") for one in reached)
        page.get_by_role("button", name="Copy: kubectl uncordon general-c2").press("Enter")
        page.get_by_role("button", name="Copy: kubectl uncordon general-c2").get_by_text("Copied").or_(
            page.get_by_text("Selected")
        ).first.wait_for()


def test_pointing_at_a_pod_marks_it_on_both_maps(visit, tmp_path):
    moved = next(pod for pod in document("drain")["answer"]["pods"] if pod["outcome"] == "moves")["pod"]
    file = report(tmp_path / "report.html", document("drain"))
    with visit.page(file.as_uri(), offline=True) as page:
        page.locator(f'[data-move="from {moved}"]').focus()
        assert page.locator(f'[data-move="to {moved}"]').get_attribute("class").split().count("subject") == 1
        assert page.locator("svg.links path.subject").count() == 1


# -- weights --------------------------------------------------------------------------------------------------------------

WEIGHTS = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled:
      - name: {plugin}
        weight: {weight}
"""


@pytest.mark.parametrize(("plugin", "weight"), [("NodeResourcesFit", 9), ("NodeResourcesBalancedAllocation", 7)])
def test_other_weights_rank_the_nodes_as_the_engine_does(plugin, weight, visit, tmp_path):
    # The best ten of the report are all nodes that fit: the page's totals must be those of a run with the weight.
    question = ("explain", "ledger-0", *QUESTIONS["pending"][2:])
    config = tmp_path / "weights.yaml"
    config.write_text(WEIGHTS.format(plugin=plugin, weight=weight))
    engine = printed(*question, "--config", str(config))["answer"]
    file = report(tmp_path / "report.html", printed(*question))
    with visit.page(file.as_uri(), offline=True) as page:
        page.get_by_role("spinbutton", name=f"Weight of {plugin}, as a number").fill(str(weight))
        rows = page.get_by_role("table", name="Nodes by total score").locator("tbody tr")
        ranked = [row.locator("td").all_inner_texts() for row in rows.all()]
    totals = {cells[1].split()[0]: int(cells[3].replace(",", "")) for cells in ranked}
    assert totals == {engine["nodes"][row["node"]]: row["total"] for row in engine["scores"]["nodes"]}
