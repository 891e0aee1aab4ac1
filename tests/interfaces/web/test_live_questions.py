"""The pages What if and Compare in a browser: the form asks what the command would, and shows the command's answer."""

import pytest

from moorage.interfaces.web.question_arguments import QuestionBody, arguments_of
from tests.interfaces.web.clusters import snapshot
from tests.interfaces.web.lab_server import LabServer
from tests.interfaces.web.reports import DEMO, printed

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
expect.set_options(timeout=20_000)

DRAIN = ("drain", "--force", "--ignore-daemonsets", "--edit=node/general-a2 labels.disk=ssd", "--", "general-a1")


@pytest.fixture
def server():
    nodes = [{"name": f"general-{name}"} for name in ("a1", "a2")]
    server = LabServer(snapshot(nodes, [{"key": "shop/web-1", "node": "general-a1", "owner": "Deployment/web"}]))
    yield server
    server.close()


def words(server):
    path, body = server.asked[-1]
    assert path == "/lab/v1/questions"
    return arguments_of(QuestionBody(**body)).words


def test_a_drain_is_asked_by_keyboard_and_shared_by_its_address(server, visit, text_of):
    answer = printed(*DRAIN[:-2], "general-a1", *DEMO)
    server.answers["POST /lab/v1/questions"] = answer
    with visit.page(server.url + "#/if", dark=True, narrow=True) as page:
        page.get_by_text("Options", exact=True).press("Enter")
        page.get_by_label("Changes to make first").fill(DRAIN[3].removeprefix("--edit="))
        assert page.get_by_role("button", name="Ask").is_disabled()
        assert page.get_by_role("checkbox", name="--ignore-daemonsets").is_checked()
        page.get_by_role("checkbox", name="--force").press("Space")
        page.get_by_role("combobox", name="Nodes").press_sequentially("AL-A")
        assert page.get_by_role("listbox", name="Nodes: names").get_by_role("option").all_inner_texts() == [
            "general-a1",
            "general-a2",
        ]
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
            page.keyboard.press(key)
        assert page.get_by_role("combobox", name="Nodes").input_value() == "general-a1 "
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=answer["summary"]).wait_for()
        assert words(server) == DRAIN
        rows = page.get_by_role("table", name="Pods").locator("tbody tr").all_inner_texts()
        assert all(any(pod["pod"] in row for row in rows) for pod in answer["answer"]["pods"])
        assert len(rows) == len(answer["answer"]["pods"])
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        shared = page.url
        visit.shoot(page, "if")
    with visit.page(shared) as page:
        page.get_by_role("heading", name=answer["summary"]).wait_for()
        assert words(server) == DRAIN
        assert page.get_by_role("checkbox", name="--force").is_checked()
        visit.shoot(page, "if-wide")


def test_lost_nodes_are_two_maps_and_the_answer_can_be_saved(server, visit, tmp_path):
    answer = printed("fail", "general-b2", "general-c1", *DEMO)
    server.answers["POST /lab/v1/questions"] = answer
    with visit.page(server.url + "#/if?ask=fail&nodes=general-b2,general-c1") as page:
        page.get_by_role("heading", name=answer["summary"]).wait_for()
        (failure,) = answer["answer"]["failures"]
        assert len(failure["moved"]) >= failure["moves"] > 0
        before, after = (page.get_by_role("group", name=name, exact=True) for name in ("Before", "After"))
        for move in failure["moved"]:
            assert before.locator(f'[data-move="from {move["pod"]}"]').count() == 1
            place = move["to"] or ("lost for good" if move["pod"] in failure["lostForGood"] else "pending")
            node = after.locator(".move-node", has=page.locator(f'[data-move="to {move["pod"]}"]'))
            assert node.locator("strong").inner_text() == place
        before.locator("[data-move]").first.hover()
        assert page.locator("[data-move].subject").count() == 2
        visit.shoot(page, "if-fail")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Download report").click()
        path = tmp_path / "report.html"
        saved.value.save_as(path)
    with visit.page(path.as_uri(), offline=True) as report:
        report.get_by_role("heading", name=answer["summary"]).wait_for()
        assert report.title() == answer["kind"]


FORMS = {
    "lost nodes": ("#/if?ask=fail", {"Nodes": "n1, n2"}, ("fail", "--mode=deleted", "--", "n1", "n2")),
    "each zone": ("#/if?ask=survive", {"Lose each node, zone, or value of a label": "zone"}, ("survive", "--over=zone", "--")),
    "a workload": (
        "#/if?ask=capacity",
        {"Workload in the cluster": "deployment/shop/web"},
        ("capacity", "--", "deployment/shop/web"),
    ),
    "a manifest": ("#/if?ask=capacity", {"or a manifest": "kind: Pod\n"}, ("capacity", "--", "template.yaml")),
    "replicas": (
        "#/if?ask=scale",
        {"Workload in the cluster": "deployment/shop/web", "Replicas 1 now": "7"},
        ("compare", "--edit=deployment/shop/web replicas=7", "--"),
    ),
    "changes": (
        "#/if?ask=change",
        {"Changes as for --edit, one a line": "pod/web requests.cpu=1\n\nconfig/default-scheduler/NodeAffinity disable"},
        ("compare", "--edit=pod/web requests.cpu=1", "--edit=config/default-scheduler/NodeAffinity disable", "--"),
    ),
    "more nodes": (
        "#/if?ask=add",
        {"Number": "2", "Like the node": "general-a1"},
        ("compare", "--add-nodes=like=general-a1,count=2", "--"),
    ),
    "configurations": (
        "#/compare",
        {"Configuration B": "kind: KubeSchedulerConfiguration", "Release A": "1.35"},
        ("compare", "--a-release=1.35", "--b=b.yaml", "--"),
    ),
}


def test_each_form_asks_its_command(server, visit):
    refused = {"_status": 422, "kind": "Status", "message": "<b>no such node</b>"}
    server.answers["POST /lab/v1/questions"] = refused
    with visit.page(server.url, allow=("Failed to load resource",)) as page:
        alert = page.get_by_role("alert").filter(has_text="<b>no such node</b>")
        for address, fields, asked in FORMS.values():
            page.goto(server.url + address)
            alert.wait_for(state="hidden")  # that of the form before: this one is there now
            before = len(server.asked)
            for label, text in fields.items():
                page.get_by_label(label, exact=True).fill(text)
            page.get_by_role("button", name="Ask", exact=True).click()
            alert.wait_for()
            assert words(server) == asked
            assert len(server.asked) == before + 1
        before = page.get_by_role("region", name="Asked before").get_by_role("link")
        expect(before).to_have_text([
            "Compare: kind: KubeSchedulerConfiguration, 1.35", "Add nodes: 2, general-a1",
            "Change something: pod/web requests.cpu=1, config/default-scheduler/NodeAffinity disable",
            "Scale a workload: deployment/shop/web, 7", "Add copies of a workload: kind: Pod",
            "Add copies of a workload: deployment/shop/web", "Lose any one node or zone: zone", "Lose nodes: n1, n2",
        ])  # fmt: skip
        before.nth(3).click()
        page.get_by_role("slider", name="Drag the number of replicas").press("ArrowRight")
        expect(page.get_by_label("Replicas 1 now")).to_have_value("8")
        page.get_by_role("button", name="Forget all").click()
        page.reload()
        expect(before).to_have_text(["Scale a workload: deployment/shop/web, 7"])


def test_nodes_are_chosen_on_the_map_which_then_shows_the_answer(server, visit):
    nodes = [{"name": f"general-{zone}{at}", "zone": zone, "allocatable": {"cpu": 1000}} for zone in "ab" for at in (1, 2)]
    pod = {"key": "shop/web-1", "node": "general-a1", "owner": "Deployment/web", "requests": {"cpu": 800}}
    server.snapshot = snapshot([{**nodes[0], "requested": {"cpu": 800}}, *nodes[1:]], [pod])
    answer = printed("drain", "general-a1", *DEMO, "--ignore-daemonsets", "--force")
    moved = {**answer["answer"]["pods"][0], "pod": "shop/web-1", "outcome": "moves"}
    answer["answer"]["pods"] = [{**moved, "origin": "general-a1", "node": "general-b1"}]
    server.answers["POST /lab/v1/questions"] = answer
    with visit.page(server.url + "#/if", dark=True) as page:
        page.emulate_media(reduced_motion="reduce")
        nodes = page.get_by_role("combobox", name="Nodes")
        page.get_by_role("group", name="Choose all nodes of a group").get_by_role("button", name="b 2").click()
        assert nodes.input_value() == "general-b1 general-b2"
        tiles = page.get_by_role("listbox", name="4 nodes; arrow keys move, Enter chooses")
        tiles.focus()
        option = tiles.get_by_role("option")
        assert option.get_attribute("aria-label").startswith("general-a1: cpu 80%")
        page.keyboard.press("Space")
        assert option.get_attribute("aria-selected") == "true"
        page.get_by_role("button", name="b 2").click()
        assert nodes.input_value() == "general-a1"
        page.get_by_role("button", name="Ask", exact=True).click()
        page.get_by_role("heading", name=answer["summary"]).wait_for()
        tiles.focus()
        assert option.get_attribute("aria-label").startswith("general-a1: cpu 0%")
        page.get_by_role("button", name="Before").click()
        tiles.focus()
        assert option.get_attribute("aria-label").startswith("general-a1: cpu 80%")
        visit.shoot(page, "if-map")
