"""``moorage mcp``: answer the questions of agents, by the Model Context Protocol."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from moorage.basis.packages import how_to_add
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, keeping_what_is_read, read_file
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.question_worker import AGENT_ANSWERING, answer_an_agent
from moorage.interfaces.cli.questions.question import open_question
from moorage.interfaces.cli.questions.report_serving import inheriting, input_words
from moorage.interfaces.cli.terminal import Progress, say, unguard
from moorage.interfaces.web.question_folders import question_folder
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.dump.live_dump import endpoint_of
from moorage.live.server.listening import listen


@described("mcp")
def mcp(**given: Any) -> None:
    """Run ``moorage mcp``."""
    try:
        from moorage.interfaces.mcp.answers import AgentAnswers, ClusterView
        from moorage.interfaces.mcp.server import make_server, serve_http
    except ImportError as error:
        raise InputError(f"moorage mcp needs the package mcp ({error}); install it with: {how_to_add('mcp')}") from None

    def read() -> Cluster:
        with Progress.of(given) as progress, open_question(given, progress) as asked:
            asked.cluster.run()
            return asked.cluster

    usage = read_file(given["usage"], CONFIG_LIMIT).decode() if given["usage"] else ""
    live = given["live"]
    if live:
        endpoint_of(given["kubeconfig"], given["context"])  # a context that does not exist is an error at once
    with ExitStack() as block:
        folder = block.enter_context(question_folder())
        if not live:
            from moorage.interfaces.cli.questions.simulate_autoscaled import kinds_of  # loads autoscalers

            block.enter_context(keeping_what_is_read())
            with Progress.of(given) as progress:
                block.enter_context(open_question(given, progress, (*kinds_of("karpenter"), *kinds_of("cluster-autoscaler"))))
        answering = (
            AGENT_ANSWERING if live else block.enter_context(inheriting(answer_an_agent))
        )  # forks while no other thread runs
        server = make_server(
            AgentAnswers(folder, answering, input_words(given), given["most"]), ClusterView(read, live=live), usage
        )
        if given["port"] is None:
            unguard()  # the protocol is JSON, which escapes control characters, and needs the plain stream
            server.run("stdio")
        else:
            with listen("127.0.0.1", given["port"], option="--http") as opened:
                port = opened.getsockname()[1]
                say(f"http://127.0.0.1:{port}/mcp", err=True)
                say("Ctrl-C stops it.", err=True)
                serve_http(server, opened)
