"""The small server of ``moorage report --serve``: the same pages for a cluster from files, on this machine only."""

import asyncio

import aiohttp
import pytest

import moorage
from moorage.cli.question_worker import ANSWERING
from moorage.cli.report import report
from moorage.cli.report_serving import input_words
from moorage.web.cluster_source import ClusterSource
from moorage.web.standalone import serve_cluster


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
        serving = asyncio.create_task(serve_cluster(ClusterSource(cluster), 0, ANSWERING, (), None, links.put_nowait))
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
