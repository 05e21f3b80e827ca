"""Methods as people write them."""

import pytest

from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.named_methods import names_of


def test_names_keep_their_order_and_count_once():
    assert list(read_methods("mixup, sgd,mixup")) == ["mixup", "sgd"]


def test_a_name_without_an_update_of_its_own_stands_on_sgd():
    assert read_methods("mixup")["mixup"] == {"method": "sgd", "mixing": "mixup"}


def test_plus_applies_several_and_the_update_comes_first():
    settings = read_methods("gce+mixup+bilevel")["gce+mixup+bilevel"]
    assert list(settings.items()) == [
        ("method", "bilevel"),
        ("loss", "generalized-cross-entropy"),
        ("mixing", "mixup"),
    ]


def test_names_that_agree_on_a_key_go_together():
    settings = read_methods("per-layer+no-l1")["per-layer+no-l1"]
    assert settings == {"method": "bilevel", "method.per_layer": True, "method.normalize": False}


def test_brackets_tune_and_may_hold_anything_json_can():
    text = 'bilevel [method.mu=1e-3; schedule={"kind": "steps", "at": [0.5, 0.75]}] + mixup[mixing.alpha=4], sgd'
    tuned, plain = read_methods(text).items()
    assert tuned[0] == 'bilevel[method.mu=1e-3;schedule={"kind":"steps","at":[0.5,0.75]}]+mixup[mixing.alpha=4]'
    assert tuned[1] == {
        "method": "bilevel",
        "method.mu": 0.001,
        "schedule": {"kind": "steps", "at": [0.5, 0.75]},
        "mixing": "mixup",
        "mixing.alpha": 4,
    }
    assert plain[0] == "sgd"


def test_a_bracket_overrules_what_its_name_sets():
    assert read_methods("dropout[network.dropout=0.2]").popitem()[1]["network.dropout"] == 0.2


def test_a_group_stands_for_its_members():
    assert list(read_methods("sgd,controls,uniform")) == ["sgd", *names_of("controls")]
    assert list(read_methods("all")) == names_of("all")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bilevle", "did you mean 'bilevel'"),
        ("contols", "groups of them: paper"),
        ("sgd+bilevle", "did you mean 'bilevel'"),
        ("sgd+bilevel", "sgd and bilevel do not go together, method cannot be both 'sgd' and 'bilevel'"),
        ("gce+mixup+label-smoothing", "gce and label-smoothing do not go together, loss"),
        ("bilevel[method.mu=1]+bilevel[method.mu=2]", "method.mu cannot be both 1 and 2"),
        ("controls+mixup", "unknown method 'controls'"),
        ("", "nothing between"),
        ("sgd,", "nothing between"),
        ("sgd,,mixup", "nothing between"),
        ("sgd+", "nothing between"),
        ("bilevel[]", "nothing between"),
        ("bilevel[method.mu]", "key=value"),
        ("bilevel[=1]", "key=value"),
        ("bilevel[method.mu=1", "do not match"),
        ("bilevel]method.mu=1[", "do not match"),
        ("bilevel[method.mu=1]x", "nothing but + may follow"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(text, message):
    with pytest.raises(SpecError) as refused:
        read_methods(text)
    assert message in str(refused.value)
