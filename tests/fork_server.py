"""Start `python -m moorage` by forking a process that has imported it: a start then costs a tenth of the CPU time.

Each process that runs tests has one such server, which it starts when a test first needs it. A test notices no difference:
`subprocess.Popen` and asyncio start a child process of the test, with its pid, its streams and its exit status. A start from
nothing remains where a test asks for what a fork does not have, such as another hash seed or a function that runs before the
program, and for tests with the mark `fresh_process`. MOORAGE_FRESH_PROCESSES=1 starts all processes from nothing.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

__all__ = ["forkable", "forks", "fresh_processes"]

SOURCES = str(Path(__file__).resolve().parents[1] / "src")
#: What `python -m moorage` imports early or late; modules with optional requirements only where those are installed.
PACKAGES = ("cluster", "interfaces.cli", "interfaces.web", "laboratory", "live", "report", "simulator")
#: Rooms with libraries that commands do not import, and that would say at the end of each process what they leave behind.
LEFT_OUT = ("moorage.laboratory.learning", "moorage.laboratory.sweeps")
#: Variables that Python and its libraries read before the program starts.
READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ")
#: What changes nothing of that: no locale is the locale C, with UTF-8 as Python has it.
NO_DIFFERENCE = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
NO_LOCALE = {"", "C", "POSIX", "C.UTF-8"}
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <sys/prctl.h>
_LONGEST = 1 << 17

# -- in the process that runs tests -----------------------------------------------------------------------------------------

_start = subprocess.Popen._execute_child
_parameters = inspect.signature(_start)
_programs = set()
_fresh = not sys.platform.startswith("linux") or bool(os.environ.get("MOORAGE_FRESH_PROCESSES"))


def forks():
    """Let `subprocess.Popen` fork what can be forked."""
    if not _fresh:
        subprocess.Popen._execute_child = _execute_child


@contextlib.contextmanager
def fresh_processes():
    """Start processes from nothing for a while."""
    forking, subprocess.Popen._execute_child = subprocess.Popen._execute_child, _start
    try:
        yield
    finally:
        subprocess.Popen._execute_child = forking


def forkable(program):
    """Return a program for `python -c` that may be forked, because it does not ask what is imported."""
    _programs.add(program)
    return program


def _execute_child(process, *arguments):
    given = _parameters.bind(process, *arguments).arguments
    asked = _asked(given)
    if asked is None:
        return _start(process, *arguments)
    pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
    streams = [fd if fd != -1 else usual for usual, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
    try:
        process.pid = _server().fork(asked, streams)
        process._child_created = True
    finally:
        process._close_pipe_fds(*pipes)
    return None


def _asked(given):
    """Return what to fork; None if only a start from nothing gives the same process."""
    words = given["args"]
    if isinstance(words, (str, bytes, os.PathLike)) or given["shell"] or given["executable"] not in {None, sys.executable}:
        return None
    words = [os.fsdecode(word) for word in words]
    if len(words) < 3 or words[0] != sys.executable:
        return None
    how, program = words[1:3]
    if not ((how, program) == ("-m", "moorage") or (how == "-c" and program in _programs)):
        return None
    usual = {"preexec_fn": None, "gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1}
    if given["pass_fds"] or any(given[name] != value for name, value in usual.items()):
        return None
    env = os.environ if given["env"] is None else given["env"]
    env = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    if not _imports_the_sources(env) or _read_at_the_start(env) != _read_at_the_start(_server().env):
        return None
    cwd = os.path.abspath(os.fsdecode(given["cwd"] or "."))
    return {
        "how": how,
        "program": program,
        "words": words[3:],
        "cwd": cwd,
        "env": env,
        "session": bool(given["start_new_session"]),
    }


def _imports_the_sources(env):
    paths = env.get("PYTHONPATH", "").split(os.pathsep)
    return next((path for path in paths if Path(path, "moorage").is_dir()), None) == SOURCES


def _read_at_the_start(env):
    read = {name: value for name, value in env.items() if name.startswith(READ_AT_THE_START) and name not in NO_DIFFERENCE}
    return {name: value for name, value in read.items() if value not in NO_LOCALE or not name.startswith(("LC_", "LANG"))}


class _Server:
    """The process that forks, seen from the one that asks it to."""

    def __init__(self):
        # The forked process becomes a child of the test, though the server forks it.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.env = {**os.environ, "PYTHONPATH": SOURCES, "OPENBLAS_NUM_THREADS": "1"}  # a thread would not be forked
        self._lock = threading.Lock()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=self.env, stdin=subprocess.DEVNULL)
        atexit.register(self._end)

    def fork(self, asked, streams):
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], streams)
            return int(self._socket.recv(32))

    def _end(self):
        self._socket.close()
        self._process.wait()


_server = functools.cache(_Server)

# -- in the server ----------------------------------------------------------------------------------------------------------


def _import_all():
    for package in PACKAGES:
        found = importlib.import_module(f"moorage.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            if not module.name.endswith("__main__") and not module.name.startswith(LEFT_OUT):
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)


def _serve(ours):
    """Fork a process for each request; return in the forked process, with what it runs."""
    while True:
        request, fds, _, _ = socket.recv_fds(ours, _LONGEST, 3)
        if not request:
            os._exit(0)
        heard, said = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if not pid:
                for fd in (heard, said):
                    os.close(fd)
                ours.close()
                return _become(json.loads(request), fds)
            os.write(said, str(pid).encode())
            os._exit(0)
        # Only when the process in between has ended is the forked one a child of the test.
        os.waitpid(between, 0)
        ours.send(os.read(heard, 32))
        for fd in (heard, said, *fds):
            os.close(fd)


def _become(asked, fds):
    for stream, fd in enumerate(fds):
        os.dup2(fd, stream)
    for fd in fds:
        os.close(fd)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.stdin = sys.__stdin__ = _reopened(0, sys.stdin, "r", -1)
    sys.stdout = sys.__stdout__ = _reopened(1, sys.stdout, "w", -1)
    sys.stderr = sys.__stderr__ = _reopened(2, sys.stderr, "w", 1)
    paths = asked["env"]["PYTHONPATH"].split(os.pathsep)
    sys.path[:0] = [path for path in paths if path not in sys.path]
    return asked


def _reopened(fd, stream, mode, buffering):
    return open(fd, mode, buffering, encoding=stream.encoding, errors=stream.errors, closefd=False)


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ours = socket.socket(fileno=int(sys.argv[1]))
    sys.path.pop(0)  # the folder of this file
    _import_all()
    gc.collect()
    gc.freeze()
    asked = _serve(ours)
    sys.argv[:] = [asked["how"], *asked["words"]]
    if asked["how"] == "-c":
        sys.path.insert(0, "")
        exec(asked["program"], {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.getcwd())
        runpy.run_module("moorage", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
