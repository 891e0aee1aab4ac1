"""Two users at the real server, each in a browser: what they see, what they may change, and a server that is killed."""

import asyncio
import re
import threading

import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.http.serve import serving
from moorage.interfaces.web.embedded_site import EmbeddedSite
from tests.interfaces.web.test_site import ADMIN, NAMESPACES, NODES, PODS, a_store, bind, pod
from tests.ports import reserve_port

pytestmark = pytest.mark.slow

GROUP = "rbac.authorization.k8s.io"
KIM = User("kim")


class RunningServer:
    """The embedded server with its web interface, in a thread."""

    def __init__(self, store, port=0):
        self.store, self.lines = store, []
        self._wanted, self._ready = port, threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self):
        self.site = EmbeddedSite(self.store, on_change=self.lines.append)
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self.store, Authenticator({"secret": ADMIN}), site=self.site, port=self._wanted) as self.port:
            self._ready.set()
            await self._end.wait()

    def link(self, user):
        """Return a link that opens one session."""
        made = asyncio.run_coroutine_threadsafe(self._token(user), self._loop).result(20)
        return f"http://127.0.0.1:{self.port}/ui/#token={made}"

    async def _token(self, user):
        return self.site.sessions.make_token(user)

    def kill(self):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


def a_cluster():
    """Two namespaces; kim may list nodes, and read the pods of one namespace."""
    store = a_store(pods=("secret",))
    store.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    store.create(PODS, "team", pod("mine"))
    bind(store, "secret", "n0")
    for name, namespace, resource in (("nodes", "", "nodes"), ("pods", "team", "pods")):
        kind = "Role" if namespace else "ClusterRole"
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["get", "list", "watch"]}]
        store.create(served(f"{kind.lower()}s", GROUP), namespace, {"metadata": {"name": name}, "rules": rules})
        subjects = [{"kind": "User", "name": "kim", "apiGroup": GROUP}]
        role = {"apiGroup": GROUP, "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "subjects": subjects, "roleRef": role}
        store.create(served(f"{kind.lower()}bindings", GROUP), namespace, binding)
    return store


def test_each_user_sees_and_changes_what_their_rights_allow(visit, text_of):
    server = RunningServer(a_cluster())
    try:
        with (
            visit.page(server.link(ADMIN)) as all_of_it,
            visit.page(server.link(KIM), fresh=True, allow=("Failed to load resource",)) as part,
        ):
            for page in (all_of_it, part):
                page.get_by_text("live", exact=True).wait_for()
            assert "1 pod is pending" in text_of(part)
            assert "team/mine" in text_of(part)
            assert "secret" not in part.content()
            for page in (all_of_it, part):
                page.goto(page.url.split("#")[0] + "#/node/n0")
                page.get_by_role("heading", name="n0").wait_for()
            assert "default/secret" in text_of(all_of_it)
            assert "secret" not in part.content()
            part.get_by_role("button", name="Run …").click()
            part.get_by_text(re.compile('User "kim" cannot patch')).wait_for()
            assert not server.store.get(NODES, "", "n0").document()["spec"].get("unschedulable")
            all_of_it.get_by_role("button", name="Run …").click()
            all_of_it.get_by_text("server dry run").wait_for()
            all_of_it.get_by_role("button", name="Run it").click()
            all_of_it.get_by_text("⊘ cordoned").wait_for()  # the page offers another command now; the dialog stays open
            all_of_it.get_by_text(re.compile(r"node/n0 cordoned(?! \(server)")).wait_for()
            part.get_by_text("cordoned").first.wait_for()  # an event shows it to the other user
    finally:
        server.kill()
    assert server.store.get(NODES, "", "n0").document()["spec"]["unschedulable"] is True
    assert server.lines == ["web interface: admin: kubectl cordon n0: node/n0 cordoned"]


def test_a_killed_server_is_seen_and_a_new_one_asks_for_a_link(visit):
    store = a_cluster()
    server = RunningServer(store, reserve_port())
    with visit.page(server.link(ADMIN), allow=("Failed to load resource",)) as page:
        page.get_by_text("live", exact=True).wait_for()
        server.kill()
        page.get_by_text("server away since").wait_for()
        again = RunningServer(store, server.port)
        try:
            page.get_by_text("This page needs a link with a token.").wait_for()
            page.goto(again.link(ADMIN))
            page.reload()
            page.get_by_text("live", exact=True).wait_for()
        finally:
            again.kill()
