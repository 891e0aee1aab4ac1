"""The small server of ``moorage report --serve``: the same pages for a cluster from files, on this machine only."""

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

import moorage
from moorage.interfaces.cli.question_worker import ANSWERING
from moorage.interfaces.cli.questions.report import report
from moorage.interfaces.cli.questions.report_serving import input_words
from moorage.interfaces.web.pod_routes import ClusterSource
from moorage.interfaces.web.report_server import serve_cluster
from moorage.simulator.autoscalers.instance_types import read_price_list


def words(*arguments):
    return input_words(report.make_context("report", list(arguments)).params)


def test_questions_get_the_input_options_of_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = words("-f", "a.json", "--edit", "pod/web priority=5", "--seed", "3", "--plugins", "p.py:P", "--no-quota", "--serve")
    assert given == [
        "--no-quota", f"--filename={tmp_path}/a.json", "--edit=pod/web priority=5", "--validate=strict", "--seed=3",
        f"--plugins={tmp_path}/p.py:P",
    ]  # fmt: skip
    assert "--filename=-" in words("-f", "-")


@pytest.mark.slow
def test_a_cluster_from_files_is_served_with_a_token():
    cluster = moorage.Cluster.read("examples/demo")
    cluster.run()

    async def test():
        links = asyncio.Queue()
        serving = asyncio.create_task(serve_cluster(ClusterSource(cluster), 0, ANSWERING, (), links.put_nowait))
        base, _, token = (await links.get()).partition("/ui/#token=")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            assert base.startswith("http://127.0.0.1:")
            assert (await http.get(f"{base}/")).status == 200
            assert (await http.get(f"{base}/lab/v1/snapshot")).status == 401
            assert (await http.get(f"{base}/ui/", headers={"Host": "evil.example"})).status == 403
            assert (await http.get(f"{base}/metrics")).status == 404
            assert (await http.post(f"{base}/lab/v1/session", json={"token": token})).status == 204
            found = await (await http.get(f"{base}/lab/v1/snapshot")).json()
            assert (found["live"], len(found["nodes"]["name"])) == (False, 8)
            pending = dict(zip(found["pods"]["key"], found["pods"]["cause"], strict=True))["default/search-2"]
            assert pending.startswith("0/8 nodes are available")
            verdicts = await (await http.get(f"{base}/lab/v1/verdicts/default/search-2")).json()
            assert len(verdicts["verdicts"]) == 8
            assert min(verdicts["verdicts"]) >= 0
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(test())


CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
GIVEN = {  # the options, and what is given on standard input
    "a folder, a configuration and a replacement": (
        ["-f", "demo", "--config", "config.yaml", "--replace", "one.yaml", "--cordon", "general-a1"], "",
    ),
    "standard input": (["-f", "-"], Path("examples/demo/nodes.yaml").read_text()),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("options", "text"), GIVEN.values(), ids=GIVEN)
def test_questions_read_no_file_again(options, text, tmp_path):
    shutil.copytree("examples/demo", tmp_path / "demo")
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "one.yaml").write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}}')
    with subprocess.Popen(
        [sys.executable, "-m", "moorage", "report", *options, "--serve"], cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as served:  # fmt: skip
        served.stdin.write(text)
        served.stdin.close()
        link = served.stdout.readline().split()[-1]
        for path in list(tmp_path.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        drained = {"drain": ["general-b1"], "ignore_daemonsets": True}
        answers = asyncio.run(_ask(link, {"report": {}}, drained, {"explain": "default/none"}))
        served.send_signal(signal.SIGINT)
        assert (served.wait(), served.stderr.read()) == (0, "")
    assert [one["kind"] for one in answers] == ["Overview", "DrainReport", "Status"]
    assert answers[0]["answer"]["nodes"]["all"] == 8
    assert ("before" in answers[0]) == ("--cordon" in options)
    assert "no pod or workload default/none" in answers[2]["message"]


async def _ask(link, *questions):
    """Return the documents that answer the questions."""
    base, _, token = link.partition("/ui/#token=")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        assert (await http.post(f"{base}/lab/v1/session", json={"token": token})).status == 204
        return [await _answer(http, base, question) for question in questions]


async def _answer(http, base, question):
    reply = await (await http.post(f"{base}/lab/v1/questions", json={"question": question})).json()
    while reply.get("state") == "running":
        await asyncio.sleep(0.05)
        reply = await (await http.get(f"{base}/lab/v1/questions/{reply['id']}")).json()
    if reply.get("state") == "failed":  # it took longer than the server waits before it returns an id
        return {"kind": "Status", "message": reply["error"]}
    return reply["answer"] if "state" in reply else reply


@pytest.mark.slow
def test_a_run_of_an_autoscaler_is_shown_on_time_to_the_user_who_asked():
    cluster = moorage.Cluster.read("examples/karpenter/cluster.yaml")
    given = words("-f", "examples/karpenter/cluster.yaml", "--instance-types", "examples/karpenter/types.json", "--serve")
    prices = read_price_list("examples/karpenter/types.json").price_of

    async def test():
        links = asyncio.Queue()
        serving = asyncio.create_task(
            serve_cluster(ClusterSource(cluster), 0, ANSWERING, given, links.put_nowait, price_of=prices)
        )
        link = await links.get()
        asked = {"simulate": {"autoscaler": "karpenter", "until": 3600.0}}
        base, _, token = link.partition("/ui/#token=")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            assert (await http.post(f"{base}/lab/v1/session", json={"token": token})).status == 204
            found = await _answer(http, base, asked)
            assert (found["kind"], found["summary"]["nodes"]) == ("SimulationReport", 3)
            past = await (await http.get(f"{base}/lab/v1/history?run={found['run']}")).json()
            assert (round(past["now"] - past["began"]), past["samples"]["nodes"][-1]) == (3600, 3)
            assert past["samples"]["cost"][-1] < past["samples"]["cost"][0]
            moment = await (await http.get(f"{base}/lab/v1/snapshot?at={past['began'] + 1}&run={found['run']}")).json()
            assert len(moment["nodes"]["name"]) == 5
            typed = {**asked["simulate"], "instanceTypes": [{"name": "dear", "resources": {"cpu": "4"}, "offerings": []}]}
            other = await _answer(http, base, {"simulate": typed})
            assert any("instance types that the file does not have" in note["text"] for note in other["notes"])
            assert (await http.get(f"{base}/lab/v1/history?run=7")).status == 404
            plain = await _answer(http, base, {"simulate": {}})
            assert "run" not in plain
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(test())
