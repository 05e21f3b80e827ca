"""What every test can rely on."""

import pytest
import torch
from hypothesis import settings

# A busy machine must not fail a property; examples are the measure, not milliseconds.
settings.register_profile("deepbilevel", deadline=None)
settings.load_profile("deepbilevel")


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed():
    """Tests run side by side, one per core; each starts from the same random numbers whatever ran before it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
