"""Generated samplers are small and odd: labels that come less often than they should are expected, and tested once."""

import warnings

import pytest


@pytest.fixture(autouse=True)
def _a_distorted_sampler_is_no_error():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="class .* has a share of")
        yield
