"""Answer one question of the web interface in this process, which was forked for it."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from moorage.interfaces.cli.cluster_files import answer_a_request
from moorage.interfaces.cli.main import main
from moorage.interfaces.cli.terminal import send_progress_to
from moorage.interfaces.web.question_processes import ANSWER, ERRORS, Answering, ProcessLimits
from moorage.report.style import write_for_agents

_MODULES: Final = ("moorage.interfaces.cli.question_worker", "moorage.interfaces.cli.questions.question_commands")
#: Options of ``moorage up`` that questions have as well.
_SAME: Final = {"config": "config", "emulate": "emulate", "feature_gates": "feature-gates", "max_disks": "max-pd-vols"}

#: How much less often than others a question gets the processor.
_NICE: Final = 5


def answer_question(words: Sequence[str], folder: str, stdin: str | None, limits: ProcessLimits, pipe: Connection) -> None:
    """Run a command in a folder, write its output to files there, and exit with the command's status."""
    sys.path.append(os.getcwd())  # for the modules of plugins
    os.chdir(folder)
    limit_process(limits)
    sys.stdout.flush()
    # The standard streams are files from here on, so that nothing is written to the server's terminal.
    given = os.open(stdin or os.devnull, os.O_RDONLY)
    made = [os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600) for name in (ANSWER, ERRORS)]
    for number, opened in enumerate((given, *made)):
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115

    def send(text: str) -> None:
        text = text.replace("reading -:", "reading the cluster:")
        with suppress(OSError):  # the question was cancelled
            pipe.send(text)

    send_progress_to(send)
    answer_a_request()
    main(words)


def answer_an_agent(words: Sequence[str], folder: str, stdin: str | None, limits: ProcessLimits, pipe: Connection) -> None:
    """Run a command as ``answer_question`` does, with texts for agents."""
    write_for_agents()
    answer_question(words, folder, stdin, limits, pipe)


#: How the web interface answers questions.
ANSWERING: Final = Answering(answer_question, _MODULES)
#: How ``moorage mcp`` does.
AGENT_ANSWERING: Final = Answering(answer_an_agent, _MODULES)


def question_words(given: Mapping[str, Any]) -> list[str]:
    """Return the options that make a question use the same scheduler as ``moorage up`` with the options ``given``."""
    words = ["--extenders=skip", f"--seed={given['seed']}"]
    for name, option in _SAME.items():
        value = given[name]
        if value not in (None, ""):
            words.append(f"--{option}={Path(value).absolute() if name == 'config' else value}")
    return words + [f"--plugins={absolute_plugin(plugin)}" for plugin in given["plugins"]]


def absolute_plugin(plugin: str) -> str:
    """Return a plugin's reference with the absolute path of its file, if it names one."""
    path, colon, name = plugin.rpartition(":")
    return f"{Path(path).absolute()}{colon}{name}" if path.endswith(".py") else plugin


def limit_process(limits: ProcessLimits) -> None:
    """Set the limits of this process."""
    for what, most in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_CPU, math.ceil(limits.cpu_s)),
        (resource.RLIMIT_FSIZE, limits.answer),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))
    os.nice(_NICE)
