"""The pages What if and Compare in a browser: the form asks what the command would, and shows the command's answer."""

import pytest

from moorage.interfaces.web.question_arguments import QuestionBody, arguments_of
from tests.interfaces.web.clusters import snapshot
from tests.interfaces.web.lab_server import LabServer
from tests.interfaces.web.reports import DEMO, printed

pytestmark = pytest.mark.slow

DRAIN = ("drain", "--ignore-daemonsets", "--force", "--edit=node/general-a2 labels.disk=ssd", "--", "general-a1")


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
        page.get_by_label("Changes to make first").fill(DRAIN[3].removeprefix("--edit="))
        assert page.get_by_role("button", name="Ask").is_disabled()
        for flag in ("--ignore-daemonsets", "--force"):
            page.get_by_role("checkbox", name=flag).press("Space")
        page.get_by_label("Nodes", exact=True).fill("general-a1")
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
        for address, fields, asked in FORMS.values():
            page.goto(server.url + address)
            before = len(server.asked)
            for label, text in fields.items():
                page.get_by_label(label, exact=True).fill(text)
            page.get_by_role("button", name="Ask", exact=True).click()
            page.get_by_role("alert").filter(has_text="<b>no such node</b>").wait_for()
            assert words(server) == asked
            assert len(server.asked) == before + 1
        assert page.locator("datalist#workloads option").get_attribute("value") == "deployment/shop/web"
