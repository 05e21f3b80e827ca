"""What a sweep's record held before: kept in mind, written anew if it is damaged, and never lost in silence."""

import json

import pytest

from deepbilevel_lab.sweeps.comparison import plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.sweep import Recorder, recorded_seeds, refuse_to_lose
from tests.cli.trained import make_spec


@pytest.fixture
def written(tmp_path):
    sweep = plan(make_spec(), read_methods("sgd"), (0, 2))
    recorder = Recorder(sweep, tmp_path)
    recorder.changed([])
    return sweep, recorder.path


def test_seeds_are_those_of_the_record(written):
    assert recorded_seeds(written[1]) == [0, 2]


@pytest.mark.parametrize("content", [None, b'{"format": 1, "na', b"\xff\xfe", b"[]", b'{"format": 9}'])
def test_what_is_no_record_is_written_anew(written, content):
    sweep, file = written
    file.unlink() if content is None else file.write_bytes(content)
    assert recorded_seeds(file) == []
    refuse_to_lose(file, sweep)


def test_a_record_with_fields_of_another_kind_is_not_written_over(written):
    sweep, file = written
    plain = json.loads(file.read_text())
    plain["cells"][0]["runs"][0]["status"] = "archived"
    file.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=r"cells\.0\.runs\.0\.status is 'archived'.*move it away"):
        refuse_to_lose(file, sweep)


def test_finished_runs_that_the_sweep_does_not_know_are_not_lost(written):
    sweep, file = written
    plain = json.loads(file.read_text())
    plain["cells"][0]["runs"][0] |= {"status": "done", "id": "another", "folder": "mine-another"}
    file.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=r"has 1 finished run.*such as mine-another"):
        refuse_to_lose(file, sweep)
