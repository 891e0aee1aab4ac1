"""Commands that a reader runs from the page, in a browser: only where the server allows it, and after the reader confirmed."""

import pytest

from tests.interfaces.web.clusters import snapshot
from tests.interfaces.web.lab_server import LabServer

pytestmark = pytest.mark.slow


def commands(server):
    return [body for path, body in server.asked if path == "/lab/v1/commands"]


def test_a_command_is_shown_and_confirmed_before_it_runs(visit):
    server = LabServer(snapshot([{"name": "n1"}, {"name": "n2;reboot"}], [], writable=True))
    server.answers["POST /lab/v1/commands"] = {"message": "node/n1 cordoned (server dry run)"}
    try:
        with visit.page(server.url + "#/node/n1", allow=("Failed to load resource",)) as page:
            page.get_by_role("button", name="Run …").press("Enter")
            dialog = page.get_by_role("dialog", name="Run this command?")
            dialog.get_by_text("node/n1 cordoned (server dry run)").wait_for()
            assert dialog.get_by_text("kubectl cordon n1", exact=True).count() == 1
            visit.shoot(page, "write-dialog")
            page.keyboard.press("Escape")
            dialog.wait_for(state="hidden")
            assert commands(server) == [{"command": "kubectl cordon n1", "dryRun": True}]
            page.get_by_role("button", name="Run …").press("Enter")
            dialog.get_by_text("server dry run").wait_for()
            server.answers["POST /lab/v1/commands"] = {"message": "node/n1 cordoned, really"}
            dialog.get_by_role("button", name="Run it").press("Enter")
            dialog.get_by_text("node/n1 cordoned, really").wait_for()
            assert dialog.get_by_role("button", name="Run it").is_disabled()
            assert commands(server)[2:] == [{"command": "kubectl cordon n1", "dryRun": False}]
            dialog.get_by_role("button", name="Close").press("Enter")
            server.answers["POST /lab/v1/commands"] = {"_status": 403, "kind": "Status", "message": "nodes is forbidden"}
            page.get_by_role("button", name="Run …").click()
            dialog.get_by_text("nodes is forbidden").wait_for()
            assert dialog.get_by_role("button", name="Run it").is_disabled()
        with visit.page(server.url + "#/node/n2;reboot") as page:
            page.get_by_role("heading", name="n2;reboot").wait_for()
            assert page.get_by_role("button", name="Run …").count() == 0  # no command of a name that a shell would read
    finally:
        server.close()


def test_a_page_that_may_not_write_offers_nothing(visit):
    server = LabServer(snapshot([{"name": "n1"}], []))
    try:
        with visit.page(server.url + "#/node/n1") as page:
            page.get_by_role("heading", name="n1").wait_for()
            assert page.get_by_role("button", name="Run …").count() == 0
    finally:
        server.close()
