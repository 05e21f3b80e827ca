"""What is counted, and what is not."""

import pytest
import torch
from torch import nn

from benchmarks.cost.counting import LiveBytes, count_work


@pytest.mark.parametrize(
    ("action", "operations", "moved", "allocated"),
    [
        (lambda x: x.add_(1), 1, 2, 0),
        (lambda x: x + 1, 1, 2, 1),
        (lambda x: torch.neg(x[:500], out=x[500:]), 1, 1, 0),  # a half is read, and a half is written
        (lambda x: torch.empty_like(x), 1, 0, 1),
        (lambda x: torch.dot(x, x), 1, 1, 0),  # read once
        (lambda x: torch.dot(x[:500], x[500:]), 1, 1, 0),  # two halves
        (lambda x: x.view(10, 100).t().detach(), 0, 0, 0),
        (lambda x: torch._foreach_mul_(list(x.split(500)), 2.0), 1, 2, 0),
        (lambda x: torch._foreach_add(list(x.split(500)), 2.0), 1, 2, 1),
    ],
)
def test_bytes_are_read_written_and_allocated(action, operations, moved, allocated):
    numbers = torch.zeros(1000)
    work = count_work(lambda: action(numbers))
    assert work.operations == operations
    assert work.bytes_moved / 4000 == pytest.approx(moved, abs=0.01)
    assert work.bytes_allocated / 4000 == pytest.approx(allocated, abs=0.01)


def test_the_backward_pass_is_counted_too_and_adding_to_a_gradient_is_a_pass():
    parameter = nn.Parameter(torch.zeros(1000))
    first, second = (count_work(lambda: (parameter * 2).sum().backward()) for _ in range(2))
    assert (second - first).operations == 1
    assert (second - first).bytes_moved == 3 * 4000


def test_live_bytes_go_when_tensors_go():
    with LiveBytes() as memory:
        one = torch.zeros(1000)
        two = one + 1
        view = two[:10]
        assert memory.live == 8000
        del one, two
        assert memory.live == 4000  # the view holds its storage
        del view
        assert memory.live == 0
        assert memory.peak == 8000
