"""Questions over HTTP: the answers are the command's documents; limits, cancelling, other users and hostile questions."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import KINDS
from moorage.api.documents.statuses import ApiError
from moorage.interfaces.cli.live.up import _run_in
from moorage.interfaces.cli.main import cli
from moorage.interfaces.cli.question_worker import ANSWERING, limit_process
from moorage.interfaces.web.question_arguments import Arguments, QuestionBody, arguments_of
from moorage.interfaces.web.question_processes import ANSWER, ERRORS, Answering, ProcessLimits
from moorage.interfaces.web.questions import Board, QuestionLimits
from tests.interfaces.web.test_site import PODS, a_store, browse, pod

# -- arguments ----------------------------------------------------------------------------------------------------------

READ = {
    "a pod": ({"explain": "default/web"}, ["explain", "--", "default/web"]),
    "all pods": ({"all": True}, ["explain", "--all", "--"]),
    "a workload": ({"capacity": ["deployment/web"]}, ["capacity", "--", "deployment/web"]),
    "a drain": ({"drain": ["n1"], "ignore_daemonsets": True}, ["drain", "--ignore-daemonsets", "--", "n1"]),
    "a zone": ({"fail": ["n1"], "zone": "a", "mode": "deleted"}, ["fail", "--mode=deleted", "--zone=a", "--"]),
    "changes in words": (
        {"report": {}, "changes": ["cordon n1", "add 2 nodes like n1", "pod/web priority=5"]},
        ["report", "--cordon=n1", "--add-nodes=like=n1,count=2", "--edit=pod/web priority=5", "--"],
    ),
}


@pytest.mark.parametrize(("question", "words"), READ.values(), ids=READ)
def test_a_question_becomes_arguments(question, words):
    assert list(arguments_of(QuestionBody(question)).words) == words


def test_a_manifest_becomes_a_file_of_the_question():
    found = arguments_of(QuestionBody({"template": pod("web")}))
    assert found.words[-1] == "template.yaml"
    assert json.loads(found.files["template.yaml"]) == pod("web")
    assert arguments_of(QuestionBody({"template": "kind: Pod"})).files == {"template.yaml": "kind: Pod"}


HOSTILE = {
    "a file": {"capacity": ["/etc/passwd"]},
    "a file above": {"capacity": ["deployment/../../etc/passwd"]},
    "a file to plan": {"plan": [], "pods": ["/etc/passwd"]},
    "a hidden file": {"numbers": {"a/.ssh": 1}},
    "an unknown field": {"explain": "web", "config": "/etc/passwd"},
    "an unknown question": {"redact": "web"},
    "two lines": {"explain": "a\nb"},
    "another type": {"drain": [1]},
    "too many": {"explain": ["a"] * 3000},
    "a long search": {"explain": "a", "probes": 10**9},
    "no edit": {"report": {}, "changes": [5]},
}


@pytest.mark.parametrize("question", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_question_is_refused(question):
    with pytest.raises(ApiError) as error:
        arguments_of(QuestionBody(question))
    assert error.value.code == 400


def test_an_option_as_a_name_stays_a_name():
    assert arguments_of(QuestionBody({"explain": "--config=/etc/passwd"})).words[-2:] == ("--", "--config=/etc/passwd")


# -- processes ----------------------------------------------------------------------------------------------------------


def sleeps(words, folder, stdin, limits, pipe):
    pipe.send("asleep")
    time.sleep(60)


def waits_and_spins(words, folder, stdin, limits, pipe):
    limit_process(limits)
    time.sleep(1.2)
    pipe.send("awake")
    while True:
        pass


def ends_the_host(words, folder, stdin, limits, pipe):
    os.kill(os.getppid(), signal.SIGKILL)


def grows(words, folder, stdin, limits, pipe):
    limit_process(limits)
    os.chdir(folder)
    try:
        held = bytearray(4 << 30)
    except MemoryError:
        Path(ERRORS).write_text("error: out of memory\n", "utf-8")
        sys.exit(1)
    Path(ANSWER).write_bytes(held[:2])


class NoInput:
    async def current(self, folder):
        return (), None


async def until(condition, seconds=30):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("run 3 of 20 …", (3, 20)),
        ("storing █░ 1,500 of 2,000", (1500, 2000)),
        ("reading a/of/9: 3 MB", (0, 0)),
        ("x of y", (0, 0)),
    ],
)
def test_progress_says_how_much_is_done_where_the_command_does(text, parts, tmp_path):
    async def test():
        asked = Board(tmp_path, NoInput().current, Answering(sleeps, ANSWERING.modules))
        one = asked.ask("ann", Arguments(("explain",), {}))
        asked._change(one, text)
        assert one.document()["progress"] == {"text": text, "done": parts[0], "total": parts[1]}
        asked.cancel(one)

    asyncio.run(test())


@pytest.mark.slow
def test_a_question_that_takes_too_long_is_stopped_and_one_can_be_cancelled(tmp_path):
    async def test():
        limits = QuestionLimits(process=ProcessLimits(wall_s=0.3))
        asked = Board(tmp_path, NoInput().current, Answering(sleeps, ANSWERING.modules), limits)
        late = asked.ask("ann", Arguments(("explain",), {"f": "x"}))
        await until(lambda: late.state != "running")
        assert (late.state, "longer than 0.3 seconds" in late.error) == ("failed", True)

        asked.limits = QuestionLimits()
        other = asked.ask("ann", Arguments(("explain",), {}))
        await until(lambda: other.text == "asleep")
        asked.cancel(other)
        await asyncio.wait([other.task])
        assert other.state == "cancelled"
        assert not any(tmp_path.iterdir())

    asyncio.run(test())


@pytest.mark.slow
def test_a_question_has_a_limit_of_cpu_time_that_waiting_does_not_use(tmp_path):
    async def test():
        limits = QuestionLimits(process=ProcessLimits(cpu_s=1))
        asked = Board(tmp_path, NoInput().current, Answering(waits_and_spins, ANSWERING.modules), limits)
        found = asked.ask("ann", Arguments(("explain",), {}))
        await until(lambda: found.text == "awake")
        await until(lambda: found.state != "running")
        assert found.error == "the question takes more than 1 seconds of CPU time; ask a smaller one, or use the command"

    asyncio.run(test())


@pytest.mark.slow
def test_a_question_that_needs_too_much_memory_fails_with_a_reason(tmp_path):
    async def test():
        asked = Board(tmp_path, NoInput().current, Answering(grows, ANSWERING.modules))
        found = asked.ask("ann", Arguments(("explain",), {}))
        await asyncio.wait([found.task])
        assert (found.state, found.error) == ("failed", "the question needs more than 4096 MiB of memory")

    asyncio.run(test())


@pytest.mark.slow
def test_a_host_that_was_killed_is_started_again(tmp_path):
    async def test():
        asked = Board(tmp_path, NoInput().current, Answering(ends_the_host, ANSWERING.modules))
        for _ in range(2):
            found = asked.ask("ann", Arguments(("explain",), {}))
            await asyncio.wait([found.task])
            assert (found.state, found.error) == ("failed", "the process that answers questions has ended")

    asyncio.run(test())


def test_a_host_that_knew_the_input_is_not_started_again(tmp_path):
    answering = Answering(sleeps, inherits=True)
    answering._host = SimpleNamespace(is_alive=lambda: False)
    with pytest.raises(ApiError, match="has ended; start the command again"):
        answering.ask((), tmp_path, None, ProcessLimits())


def test_a_flood_of_questions_is_refused_for_each_user_and_for_all(tmp_path):
    async def test():
        limits = QuestionLimits(running=1, waiting=2, per_user=2)
        asked = Board(tmp_path, Waiting().current, Answering(sleeps, ANSWERING.modules), limits)
        for user in ("ann", "ann", "bob"):
            asked.ask(user, Arguments(("explain",), {}))
        for user in ("ann", "bob"):
            with pytest.raises(ApiError, match="too many questions"):
                asked.ask(user, Arguments(("explain",), {}))
        tasks = [one.task for one in asked.of("ann") + asked.of("bob")]
        asked.end()
        await asyncio.wait(tasks)

    asyncio.run(test())


class Waiting:
    async def current(self, folder):
        await asyncio.Event().wait()


# -- over HTTP ----------------------------------------------------------------------------------------------------------


def command(tmp_path, store, *words):
    """Return what the command prints for the objects of a store."""
    items = [one.document() for kind in KINDS for one in store.all(kind)]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ran = CliRunner().invoke(cli, [*words, "-f", str(path), "-o", "json"])
    assert ran.stdout, ran.output
    return json.loads(ran.stdout)


async def answer(browser, question, **body):
    """Return the answer to a question, when there is one."""
    status, found = await browser.ask("POST", "/lab/v1/questions", {"question": question, **body})
    async with asyncio.timeout(120):
        while status in {200, 202} and found.get("state") == "running":
            await asyncio.sleep(0.05)
            status, found = await browser.get(f"/lab/v1/questions/{found['id']}")
    return status, found["answer"] if "state" in found and "answer" in found else found


@pytest.mark.slow
def test_answers_are_the_documents_of_the_command(tmp_path):
    store = a_store(nodes=2, pods=("web",))
    store.create(PODS, "default", pod("large", cpu="9"))

    async def test(browser, store):
        await browser.enter()
        status, found = await answer(browser, {"explain": "default/large", "probes": 40})
        expected = await asyncio.to_thread(command, tmp_path, store, "explain", "default/large", "--probes=40")
        assert (status, found["kind"], found["answer"]) == (200, "Explanation", expected["answer"])
        assert {**found, "input": 0} == {**expected, "input": 0}
        assert found["input"]["digest"] == expected["input"]["digest"]

        atoms = found["answer"]["changes"][0]["atoms"]
        _, tried = await answer(browser, {"explain": "default/large", "probes": 40}, changes=atoms)
        assert (tried["answer"]["outcome"], tried["before"]["answer"]["outcome"]) == ("placed", "pending")

        status, found = await answer(browser, {"explain": "default/none"})
        assert "no pod or workload default/none" in found.get("error", found.get("message")), (status, found)
        assert (await browser.get("/lab/v1/questions/99"))[0] == 404

        text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: {}\n"
        status, found = await answer(browser, {"configuration": text.format(8)})
        assert (status, found["kind"], found["parallelism"]) == (200, "KubeSchedulerConfiguration", 8)
        status, found = await answer(browser, {"configuration": text.format(-8)})
        assert "parallelism: Invalid value: -8" in found.get("error", found.get("message"))
        assert not [name for name in os.listdir(browser.site.folder) if name.startswith("question-")]

    browse(test, store, answer=ANSWERING)


@pytest.mark.slow
def test_a_run_of_an_autoscaler_on_a_cluster_that_lives_is_kept_with_its_nodes():
    store = a_store(nodes=2)
    for name in ("a", "b", "c"):
        store.create(PODS, "default", pod(name, cpu="3"))

    async def test(browser, store):
        await browser.enter()
        status, found = await answer(browser, {"simulate": {"autoscaler": "cluster-autoscaler", "until": 600}})
        assert (status, found["summary"]["nodes"]) == (200, 3)
        _, past = await browser.get(f"/lab/v1/history?run={found['run']}")
        assert (past["samples"]["nodes"][0], past["samples"]["nodes"][-1]) == (2, 3)

    browse(test, store, answer=ANSWERING, past_of=_run_in)


@pytest.mark.slow
def test_another_user_sees_no_question_and_one_without_rights_may_ask_none():
    users = {"secret": User("admin", ("system:masters",)), "other": User("root", ("system:masters",)), "weak": User("weak")}

    async def test(browser, store):
        body = {"question": {"report": {}}}
        status, _ = await browser.ask("POST", "/lab/v1/questions", body, Authorization="Bearer weak")
        assert status == 403
        status, found = await browser.ask("POST", "/lab/v1/questions", body, Authorization="Bearer secret")
        if status == 202:
            assert (await browser.get(f"/lab/v1/questions/{found['id']}", Authorization="Bearer other"))[0] == 404
            status, found = await browser.ask("DELETE", f"/lab/v1/questions/{found['id']}", Authorization="Bearer secret")
            assert (status, found["state"]) == (200, "cancelled")

    browse(test, a_store(), users, answer=ANSWERING)


ASKED = {
    "explain": ({"explain": ["default/search-2"], "probes": 0, "alternatives": 1, "may": "pod,node"}, "Explanation"),
    "a template": ({"template": pod("web"), "limit": 2, "gains": False, "preempt": True, "pending": "ignore"}, "Capacity"),
    "numbers": ({"numbers": {"statefulset/search": 2}, "replicas": True, "quota": False, "gains": False}, "Capacity"),
    "plan": ({"types": [{"name": "t", "like": "general-c2", "price": 1}], "timeLimitSeconds": 1.0}, "NodePlan"),
    "drain": ({"drain": ["general-a1"], "ignore_daemonsets": True, "ready_after": "5s", "surge": 1}, "DrainReport"),
    "cordon": ({"cordon": ["general-a1"]}, "DrainReport"),
    "fail": ({"fail": [], "zone": "zone-a", "mode": "unreachable"}, "Survival"),
    "survive": ({"survive": "zone", "probes": 0, "depth": 1}, "Survival"),
    "compare changes": ({"compare": {"seeds": 1, "failOn": ["pending > +5"]}, "changes": ["cordon general-a1"]}, "Comparison"),
    "compare configurations": (
        {"compare": {"b": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}, "seeds": 1}},
        "Comparison",
    ),
    "report": ({"report": {"allNodes": True, "byEngine": 0}, "changes": ["add 1 node like general-c2"]}, "Overview"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("question", "kind"), ASKED.values(), ids=ASKED)
def test_every_kind_of_question_is_one_that_a_command_answers(question, kind, tmp_path, monkeypatch):
    demo = Path("examples/demo").absolute()
    monkeypatch.chdir(tmp_path)
    found = arguments_of(QuestionBody(question, kind))
    for name, text in found.files.items():
        Path(name).write_text(text, "utf-8")
    command, *rest = found.words
    ran = CliRunner().invoke(cli, [command, "-f", str(demo), "-o", "json", *rest])
    assert ran.stdout, ran.output
    assert json.loads(ran.stdout)["kind"] == kind
