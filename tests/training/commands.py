"""The command in real processes, forked from one that has everything imported: a start costs no seconds."""

import json
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from deepbilevel_lab.training.checkpoints import Checkpoints

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "deepbilevel_lab.cli.app",
        "deepbilevel_lab.cli.train",
        "deepbilevel_lab.cli.watching",
        "deepbilevel_lab.training.run",
        "deepbilevel_lab.training.spec_files",
        "filelock",
        "safetensors.torch",
        "sklearn.datasets",
        "torch.utils.tensorboard",
    ]
)
_FILE_EVENTS = {"open", "os.mkdir", "os.remove", "os.rename"}
DIGITS = ("--data", "digits", "--noise", "uniform:0.5", "--threads", "1", "--json")


class Command:
    """``deepbilevel train``, or another command, under way in a process of its own.

    Args:
        arguments: of the command.
        out: its folder of runs.
        dies_at: the operation on files in that folder before which the process kills itself, counted from 1.
        dies_after: the event of ``--json`` after which it kills itself.
        waits_after: the event of ``--json`` one group after which it says ``waiting``, and waits for a signal of ours:
            a short run may otherwise be over before a busy machine has sent one.
        environment: variables that it has besides ours.
        command: its name.
    """

    def __init__(
        self,
        *arguments: object,
        out: Path,
        dies_at: int | None = None,
        dies_after: str | None = None,
        waits_after: str | None = None,
        environment: dict[str, str] | None = None,
        command: str = "train",
    ) -> None:
        receivers, senders = zip(*(_CONTEXT.Pipe(duplex=False) for _ in range(2)), strict=True)
        leash, self._leash = _CONTEXT.Pipe(duplex=False)  # it waits until this end is closed
        words = [command, *map(str, arguments), "--out", str(out)]
        self.process = _CONTEXT.Process(
            target=_become,
            args=(words, str(out), dies_at, dies_after, waits_after, leash, environment or {}, *senders),
        )
        self.process.start()
        for each in (*senders, leash):
            each.close()
        self._output, self._errors = (open(os.dup(each.fileno())) for each in receivers)  # noqa: PTH123, SIM115

    def wait_for(self, *events: str) -> dict:
        """Wait until it reports one of these events, and return the report."""
        for line in self._output:
            said = json.loads(line)
            if said["event"] in events:
                return said
        raise AssertionError(f"ended without {events}: {self.end()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; if it waits for one, it goes on after that."""
        try:
            os.kill(self.process.pid, number)
        except ProcessLookupError:
            raise AssertionError(f"ended before {number.name}: {self.end()}") from None
        self._leash.close()

    def killed_after(self, seconds: float) -> int:
        """Kill it unless it ends before, and return its exit code."""
        self.process.join(seconds)
        self.process.kill()
        code, output, errors = self.end()
        assert code in (0, -signal.SIGKILL), output + errors
        return code

    def end(self) -> tuple[int, str, str]:
        """Wait for its end and return its exit code, and the rest of what it said on its two streams."""
        self._leash.close()
        with self._output, self._errors:
            output, errors = self._output.read(), self._errors.read()
        self.process.join()
        return self.process.exitcode, output, errors


def _become(arguments, folder, dies_at, dies_after, waits_after, leash, environment, output, errors) -> None:
    from deepbilevel_lab.cli import main

    multiprocessing.set_start_method("fork", force=True)  # as in a process that was started by hand
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    os.environ.update(environment)
    # A suite started in the background ignores Ctrl-C, and would hand that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if dies_at is not None:
        _die_at(dies_at, folder)
    if dies_after is not None:
        _die_after(dies_after)
    if waits_after is not None:
        _wait_after(waits_after, leash)
    sys.argv = ["deepbilevel", *arguments]
    main()


def _die_at(number: int, folder: str) -> None:
    seen = 0

    def count(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event in _FILE_EVENTS and str(arguments[0]).startswith(folder):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def _die_after(event: str) -> None:
    from deepbilevel_lab.cli import watching

    class Dying(watching.Json):
        def say(self, name, **content):
            super().say(name, **content)
            if name == event:
                os.kill(os.getpid(), signal.SIGKILL)

    watching.Json = Dying


def _wait_after(event: str, leash: Connection) -> None:
    from deepbilevel_lab.cli import watching

    class Waiting(watching.Json):
        is_due = False

        def say(self, name, **content):
            super().say(name, **content)
            self.is_due |= name == event

        def progress(self, progress, loop):
            super().progress(progress, loop)
            if self.is_due:
                self.is_due = False
                self.say("waiting")
                # Signals are heard meanwhile. SIGSTOP could come after the SIGCONT that is to end it.
                leash.poll(None)

    watching.Json = Waiting


def run(*arguments: object, out: Path, dies_at: int | None = None) -> tuple[int, str, str]:
    return Command(*arguments, out=out, dies_at=dies_at).end()


def run_to_the_end(*arguments: object, out: Path) -> Path:
    code, _, errors = run(*arguments, out=out)
    assert code == 0, errors
    assert errors == ""
    return only_folder(out)


def only_folder(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def outcome(folder: Path) -> dict:
    """Return everything that has to be the same bit for bit, however often a run was stopped."""
    record = json.loads((folder / "record.json").read_text())
    assert record["status"] == "done"
    step, state = Checkpoints(folder / "checkpoints").load_latest()
    state.pop("clock")
    return {
        "model": (folder / "model.safetensors").read_bytes(),
        "steps": {path.name: path.read_bytes() for path in (folder / "steps").iterdir()},
        "results": {name: record[name] for name in ("id", "history", "final", "best", "steps", "spec")},
        "checkpoint": (step, state),
    }
