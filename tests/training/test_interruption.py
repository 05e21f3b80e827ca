"""Real signals: the first is a wish, the second Ctrl-C is not, and afterwards everything is as it was."""

import signal
import subprocess
import sys
import threading

import pytest

from deepbilevel_lab.training import interruption
from deepbilevel_lab.training.interruption import Interruption

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
EVERY_SIGNAL = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


def send(number):
    """Send a signal to this very process; Python has handled it when this returns."""
    signal.raise_signal(number)


@pytest.fixture(autouse=True)
def _handlers_stay():
    """Begin with Python's own handlers, also where the suite runs in the background and Ctrl-C is ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@EVERY_SIGNAL
def test_a_signal_is_noted_and_work_goes_on(number):
    with Interruption() as wish:
        assert not wish.requested
        send(number)
        work = sum(range(10))
        assert wish.requested
    assert work == 45
    assert wish.requested


@EVERY_SIGNAL
def test_ctrl_c_does_not_wait_a_second_time(number):
    with Interruption():
        send(number)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_second_request_to_terminate_is_no_more_than_the_first():
    with Interruption() as wish:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert wish.requested


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_handlers_are_those_of_before_however_it_ends(error):
    def own(number, frame):
        pass

    signal.signal(signal.SIGTERM, own)
    before = [signal.getsignal(number) for number in SIGNALS]
    try:
        with Interruption():
            assert all(signal.getsignal(number) not in before for number in SIGNALS)
            if error is not None:
                raise error
    except (RuntimeError, KeyboardInterrupt) as raised:
        assert type(raised) is error  # noqa: PT017 - it must come through
    else:
        assert error is None
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_after_it_ctrl_c_is_ctrl_c_again():
    with Interruption():
        pass
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


def test_of_two_the_inner_hears_and_both_have_the_wish():
    with Interruption() as outer:
        with Interruption() as inner:
            send(signal.SIGTERM)
            assert (outer.requested, inner.requested) == (False, True)
        assert outer.requested
        with Interruption() as next_one:
            assert next_one.requested


def test_outside_the_main_thread_it_hears_nothing_and_touches_nothing():
    before = [signal.getsignal(number) for number in SIGNALS]
    seen = []

    def work():
        with Interruption() as wish:
            seen.append([signal.getsignal(number) for number in SIGNALS])
        seen.append(wish.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, False]
    assert [signal.getsignal(number) for number in SIGNALS] == before


PROGRAM = """
import runpy, sys
Interruption = runpy.run_path(sys.argv[1])["Interruption"]  # without torch, which takes its time
with Interruption() as interruption:
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(1000):
            pass  # Python hears signals between its own instructions
        print(interruption.requested, flush=True)
print("over", flush=True)
"""


@pytest.fixture
def child():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, interruption.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def ask(process):
    """Let the child's loop turn once; a signal sent before is handled by then."""
    process.stdin.write("go on\n")
    return process.stdout.readline().strip()


@EVERY_SIGNAL
def test_another_process_goes_on_after_a_signal_and_ends_well(child, number):
    assert ask(child) == "False"
    child.send_signal(number)
    assert ask(child) == "True"
    child.stdin.close()
    assert child.stdout.read() == "over\n"
    assert child.wait() == 0


def test_another_process_ends_at_the_second_ctrl_c_while_it_waits(child):
    child.send_signal(signal.SIGINT)
    assert ask(child) == "True"
    child.send_signal(signal.SIGINT)
    assert child.wait() == -signal.SIGINT
    assert "KeyboardInterrupt" in child.stderr.read()
