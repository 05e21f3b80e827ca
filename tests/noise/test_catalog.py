"""Noise as people write it down: ``kind:rate``."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.noise import CATALOG, NoiseSpec, parse_noise
from tests.contracts.noise import clean_labels_of, rates


@pytest.mark.parametrize(("kind", "flip"), CATALOG.items(), ids=CATALOG)
def test_a_spec_makes_the_noise_it_names(kind, flip):
    clean_labels = clean_labels_of([30, 40, 50])
    noisy = parse_noise(f"{kind}:0.4").apply(clean_labels, num_classes=3, seed=5)
    np.testing.assert_array_equal(noisy.labels, flip(clean_labels, 0.4, num_classes=3, seed=5).labels)


@given(st.sampled_from(sorted(CATALOG)), rates)
def test_a_spec_survives_text_and_json(kind, rate):
    spec = NoiseSpec(kind, rate)
    assert parse_noise(str(spec)) == spec
    assert NoiseSpec(**json.loads(json.dumps(asdict(spec)))) == spec


def test_equal_specs_are_written_alike_and_hash_alike():
    specs = [NoiseSpec("pair", 1), parse_noise("pair:1"), parse_noise("pair:1.0"), NoiseSpec("pair", np.float64(1))]
    assert {str(spec) for spec in specs} == {"pair:1.0"}
    assert len(set(specs)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unifrom:0.5", "unknown kind of noise 'unifrom'; did you mean 'uniform'"),
        ("UNIFORM:0.5", "unknown kind of noise 'UNIFORM'; did you mean 'uniform'"),
        ("sym:0.5", "unknown kind of noise 'sym'; did you mean 'symmetric'"),
        ("pairflip:0.5", "unknown kind of noise 'pairflip'; did you mean 'pair'"),
        ("zzz:0.5", "unknown kind of noise 'zzz'; There are: uniform, symmetric, pair$"),
        ("pairs", "unknown kind of noise 'pairs'; did you mean 'pair'"),
        ("", "unknown kind of noise ''; There are"),
        ("pair", "noise must be written kind:rate, such as 'pair:0.5', got 'pair'"),
        ("pair:", "noise must be written kind:rate, such as 'pair:0.5', got 'pair:'"),
        ("pair:40%", "noise must be written kind:rate, such as 'pair:0.5', got 'pair:40%'"),
        ("pair:0.1:0.2", "noise must be written kind:rate, such as 'pair:0.5', got 'pair:0.1:0.2'"),
        ("pair:40", "rate must lie between 0 and 1, got 40.0; for 40 % pass 0.4"),
        ("pair:nan", "rate must lie between 0 and 1, got nan"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_way_out(text, message):
    with pytest.raises(ValueError, match=message):
        parse_noise(text)


def test_the_catalog_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        CATALOG["uniform"] = None
