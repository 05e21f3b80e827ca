"""What every test can rely on."""

import os

import pytest
import torch
from hypothesis import settings

# A busy machine must not fail a property; examples are the measure, not milliseconds.
settings.register_profile("deepbilevel", deadline=None)
settings.load_profile("deepbilevel")


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed():
    """Tests run side by side, one per core; each starts from the same random numbers whatever ran before it.

    Both can be varied, to see that no test rests on the order of a sum or on one draw of numbers.
    """
    torch.set_num_threads(int(os.environ.get("DEEPBILEVEL_TEST_THREADS", "1")))
    torch.manual_seed(int(os.environ.get("DEEPBILEVEL_TEST_SEED", "0")))
