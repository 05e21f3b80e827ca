"""Several runs as processes side by side, watched from one.

Each is the command itself, given its spec on its input and answering in JSON: what is killed, resumed or inspected is
an ordinary run.
"""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from queue import Empty, Queue
from statistics import mean, stdev
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, cast

import typer

from deepbilevel.cli.messages import FAILED, INTERRUPTED
from deepbilevel.cli.watching import describe_row, tell
from deepbilevel.specs import canonical_json
from deepbilevel.training.interruption import Interruption

if TYPE_CHECKING:
    from deepbilevel.training.spec import RunSpec

_PATIENCE_SECONDS = 0.2
_Event = tuple["RunSpec", dict[str, Any] | None]


def run_side_by_side(specs: "list[RunSpec]", jobs: int, options: list[str], *, quiet: bool, as_json: bool) -> int:
    """Run all specs, ``jobs`` at a time, and return the exit code: one failure does not stop the others."""
    waiting, events = list(specs), Queue[_Event]()
    processes: dict[int, subprocess.Popen[str]] = {}
    done: dict[int, dict[str, Any]] = {}
    codes: dict[int, int] = {}
    with Interruption() as interruption, ExitStack() as stack:
        stack.callback(_kill, processes)  # those that an error or a second Ctrl-C leaves; they have their checkpoints
        while processes or (waiting and not interruption.requested):
            while waiting and len(processes) < jobs and not interruption.requested:
                spec = waiting.pop(0)
                processes[spec.seed] = _start(spec, options, events)
            if interruption.requested:
                for process in processes.values():
                    process.send_signal(signal.SIGTERM)
            try:
                spec, event = events.get(timeout=_PATIENCE_SECONDS)
            except Empty:
                continue
            if event is None:
                codes[spec.seed] = processes.pop(spec.seed).wait()
            else:
                if event["event"] == "done":
                    done[spec.seed] = event
                _show(spec, event, quiet=quiet, as_json=as_json)
    if not as_json and done:
        tell(_summary(list(done.values())))
    # A process that has hardly begun knows no better than to die of the signal.
    harmless = (0, INTERRUPTED, -signal.SIGTERM) if interruption.requested else (0, INTERRUPTED)
    failed = [seed for seed, code in codes.items() if code not in harmless]
    if failed:
        typer.echo(f"error: the runs with seeds {', '.join(map(str, failed))} failed; see above", err=True)
        return FAILED
    return INTERRUPTED if len(done) < len(specs) else 0


def _start(spec: "RunSpec", options: list[str], events: "Queue[_Event]") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "deepbilevel", "train", "--spec", "-", "--json", *options]
    # Ctrl-C reaches all processes; the parent answers for those that still import and cannot save yet.
    answer = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, answer)
    source = cast(IO[str], process.stdin)
    source.write(canonical_json(spec))
    source.close()
    Thread(target=_listen, args=(spec, cast(IO[str], process.stdout), events), daemon=True).start()
    return process


def _listen(spec: "RunSpec", lines: IO[str], events: "Queue[_Event]") -> None:
    for line in lines:
        try:
            event: Any = json.loads(line)
        except ValueError:  # cut short by a kill, or not said by us
            event = {"event": "message", "text": line.rstrip()}
        events.put((spec, event))
    events.put((spec, None))


def _kill(processes: "dict[int, subprocess.Popen[str]]") -> None:
    for process in processes.values():
        process.kill()


def _show(spec: "RunSpec", event: dict[str, Any], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        tell(json.dumps({"seed": spec.seed, **event}))
    elif event["event"] == "message":
        tell(f"seed {spec.seed}: {event['text']}")
    elif event["event"] == "epoch" and not quiet:
        tell(f"seed {spec.seed}: epoch {event['epoch']}/{spec.epochs}  {describe_row(event)}")
    elif event["event"] == "done":
        last, best = event["final"]["test"], event["best"]["test"]
        tell(f"seed {spec.seed}: test {last:.2f}, at best {best:.2f}; {event['folder']}")


def _summary(results: list[dict[str, Any]]) -> str:
    parts: list[str] = []
    for label, key in (("last epoch", "final"), ("best epoch", "best")):
        values = [result[key]["test"] for result in results]
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        parts.append(f"{label} {mean(values):.2f}{spread}")
    return f"test over {len(results)} seed(s), mean ± standard deviation: {', '.join(parts)}"
