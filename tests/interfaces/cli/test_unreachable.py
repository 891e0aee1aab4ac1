"""What ``moorage run`` says on a terminal while it cannot reach the API server."""

import sys

from moorage.interfaces.cli.live.run_process import reports_for

NODES = "nodes: watch /api/v1/nodes: cannot connect: Connection refused; listing again in 1.5s"
PODS = "pods: watch /api/v1/pods: cannot connect: Connection refused; listing again in 0.8s"
LATER = "pods: watch /api/v1/pods: cannot connect: No route to host; listing again in 30.0s"


def said_of(monkeypatch, capsys, lines, *, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    logged = []
    report = reports_for("https://a:6443", logged.append)
    for line in lines:
        report(line)
    return capsys.readouterr().err.splitlines(), logged


def test_one_sentence_on_a_terminal_and_another_when_the_reason_changes(monkeypatch, capsys):
    said, logged = said_of(monkeypatch, capsys, [NODES, PODS, LATER, NODES[:-4], "bind a/b: x"], terminal=True)
    assert said == [
        "cannot reach https://a:6443: connection refused; retrying every second or two",
        "cannot reach https://a:6443: no route to host; retrying every second or two",
    ]
    assert logged == [NODES[:-4], "bind a/b: x"]


def test_log_lines_elsewhere(monkeypatch, capsys):
    assert said_of(monkeypatch, capsys, [NODES, PODS], terminal=False) == ([], [NODES, PODS])


def test_a_live_question_names_the_server_that_it_cannot_reach(moorage, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: a, user: u}}]\n"
    )
    said = "error: cannot reach https://127.0.0.1:1: connection refused\n"
    assert moorage("dump", "--kubeconfig", config).err.endswith(said)
    assert moorage("explain", "web", "--live", "--kubeconfig", config).err.endswith(said)
