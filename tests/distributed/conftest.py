"""One set of processes per world size, for all tests."""

import pytest

from tests.distributed.processes import Processes


def _processes(size, tmp_path_factory):
    processes = Processes(size, tmp_path_factory.mktemp("processes"))
    yield processes
    processes.stop()


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    yield from _processes(1, tmp_path_factory)


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    yield from _processes(2, tmp_path_factory)


@pytest.fixture(scope="session")
def three(tmp_path_factory):
    yield from _processes(3, tmp_path_factory)


@pytest.fixture(params=["one", "two", "three"])
def processes(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["two", "three"])
def several(request):
    return request.getfixturevalue(request.param)
