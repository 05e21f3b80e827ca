"""A real Ray cluster of two nodes on this machine, with one CPU each."""

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

_PR_SET_PDEATHSIG = 1
_START = [
    *("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", str(80 * 2**20), "--disable-usage-stats"),
    *("--min-worker-port", "0", "--max-worker-port", "0"),  # two nodes on one machine would choose the same ones
    *("--include-log-monitor", "false", "--block"),
]


@contextmanager
def started_cluster():
    """Yield the address of the cluster; however the test ends, nothing of it is left."""
    # Ray puts sockets into this folder, whose paths must be short: pytest's own folders are too deep.
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    address = f"127.0.0.1:{_free_port()}"
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        # For the nodes and the commands of the tests alike: whether the user's home has a key must not matter.
        environment.setenv("RAY_AUTH_MODE", "token")
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        head = ["--head", "--port", address.rpartition(":")[2], "--temp-dir", folder, "--include-dashboard", "false"]
        stack.enter_context(_started_node(*head))
        stack.enter_context(_started_node("--address", address))
        yield address


@contextmanager
def _started_node(*arguments):
    command = [Path(sys.executable).parent / "ray", "start", *arguments, *_START]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        start_new_session=True,
        # Should the suite itself be killed, no fixture is left to end it.
        preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield
    finally:
        process.stdout.close()
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # never `ray stop`: it ends the clusters of others too
        process.wait()


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
