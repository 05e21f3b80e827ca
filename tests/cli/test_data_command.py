"""`deepbilevel data` as its user runs it."""

import hashlib
import io
import tarfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from PIL import Image
from typer.testing import CliRunner

from deepbilevel_lab.cli.app import app
from deepbilevel_lab.data import DATA_SETS
from deepbilevel_lab.data.cifar import CIFAR10
from deepbilevel_lab.data.download import Archive
from tests.cli.trained import run_in_process
from tests.data.layouts import write_csv, write_folder, write_imagenet, write_jpeg, write_voc


def run(*arguments, **environment):
    return run_in_process("data", *arguments, **environment)


def test_list_names_every_data_set():
    output = run("list").stdout
    assert all(name in output for name in DATA_SETS)
    assert "worst" in output


@pytest.mark.parametrize(
    ("name", "write", "sheets"),
    [
        ("voc2007", write_voc, ["voc2007-test.png", "voc2007-trainval.png"]),
        ("imagenet", write_imagenet, ["imagenet-train.png", "imagenet-val.png"]),
        ("folder", write_folder, ["folder-all.png"]),
    ],
)
def test_check_counts_and_draws_every_split(name, write, sheets, tmp_path):
    write(tmp_path / "data")
    result = run("check", name, "--dir", tmp_path / "data", "--out", tmp_path / "sheets")
    assert result.exit_code == 0, result.output
    assert "images," in result.stdout
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == sheets
    with Image.open(tmp_path / "sheets" / sheets[0]) as sheet:
        assert sheet.width > 600
        assert len(sheet.convert("RGB").getcolors(1 << 24)) > 100  # there is something on it


def test_check_of_a_table_tells_how_many_labels_are_wrong(tmp_path):
    result = run("check", "csv", "--dir", write_csv(tmp_path), "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "33.33% of the labels differ from the clean ones" in result.stdout


def test_the_folder_can_come_from_the_environment(tmp_path):
    result = run("check", "digits", "--out", tmp_path, DEEPBILEVEL_DATA=str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "1,347 images, 10 classes" in result.stdout


def test_a_broken_image_is_named_and_fails(tmp_path):
    write_folder(tmp_path)
    write_jpeg(tmp_path / "cat" / "broken.jpg")
    path = tmp_path / "cat" / "broken.jpg"
    path.write_bytes(path.read_bytes()[:300])
    result = run("check", "folder", "--dir", tmp_path, "--out", tmp_path / "sheets")
    assert result.exit_code == 1
    assert "broken.jpg" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "sheets").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "cifar11"), "did you mean 'cifar10'"),
        (("check", "cifar10", "--dir", "nowhere"), "deepbilevel data fetch cifar10 --dir nowhere"),
        (("fetch", "imagenet"), "imagenet cannot be fetched"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_fetch_leaves_an_existing_folder_alone(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    result = run("fetch", "cifar10", "--dir", tmp_path)
    assert result.exit_code == 0, result.output
    assert "used as it is" in result.stdout


def test_fetch_downloads_checks_and_unpacks(tmp_path, monkeypatch):
    archive = tmp_path / "served" / "set.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-10-batches-py/batches.meta")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"meta"))
    handler = partial(SimpleHTTPRequestHandler, directory=archive.parent)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/set.tar.gz"
        content = archive.read_bytes()
        served = Archive(url, md5=hashlib.md5(content).hexdigest(), size=len(content))
        release = replace(CIFAR10, archive=served)
        monkeypatch.setitem(DATA_SETS, "cifar10", replace(DATA_SETS["cifar10"], release=release))
        result = CliRunner().invoke(app, ["data", "fetch", "cifar10", "--dir", str(tmp_path / "data")])
        server.shutdown()
    assert result.exit_code == 0, result.output
    assert (tmp_path / "data" / "cifar-10-batches-py" / "batches.meta").read_bytes() == b"meta"
