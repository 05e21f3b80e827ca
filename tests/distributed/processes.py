"""Real processes that share a process group (gloo) and stay alive for many cases: starting one costs seconds."""

import io
import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

_PATIENCE = 120.0


class Processes:
    """Runs functions in ``size`` processes at once; each has ``torch.distributed`` initialised."""

    def __init__(self, size: int, folder: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        # Once for all processes.
        context.set_forkserver_preload(
            ["torch.distributed.fsdp", "deepbilevel_lab.training.run", "filelock", "sklearn.datasets"]
        )
        self._ends, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, str(folder / "store"), theirs), daemon=True)
            process.start()
            self._ends.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], **arguments: Any) -> list[Any]:
        """Return what ``function`` returned in each process, by rank."""
        for end in self._ends:
            end.send_bytes(_packed((function, arguments)))
        answers = []
        for rank, end in enumerate(self._ends):
            if not end.poll(_PATIENCE):
                self.stop()
                raise TimeoutError(f"process {rank} did not answer: it waits for another one")
            answers.append(_unpacked(end.recv_bytes()))
        for _, failure in answers:
            if failure is not None:
                raise AssertionError(f"a process failed:\n{failure}")
        return [answer for answer, _ in answers]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


# Not `pickle`: with torch 2.4 and 2.5 that warns of every tensor it reads.
def _packed(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=False)


def _serve(rank: int, size: int, store: str, end: Any) -> None:
    # As many as the test itself has (tests/conftest.py): bits are the same for the same number of threads alone.
    torch.set_num_threads(int(os.environ.get("DEEPBILEVEL_TEST_THREADS", "1")))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    while True:
        function, arguments = _unpacked(end.recv_bytes())
        torch.manual_seed(0)
        try:
            answer, failure = function(**arguments), None
        except BaseException:
            answer, failure = None, traceback.format_exc()
        # By value: multiprocessing would share the tensors' memory.
        end.send_bytes(_packed((answer, failure)))
