"""What ``moorage run`` says on a terminal while it cannot reach the API server."""

import sys

from moorage.cli.unreachable import reports_for

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
