"""Fetching from a real server on this machine that breaks connections, knows ranges or not, and sends wrong files."""

import hashlib
import io
import tarfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deepbilevel_lab.data.download import Archive, fetch_archive, unpack_archive

CONTENT = bytes(range(256)) * 8192  # 2 MiB


@dataclass
class Behaviour:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    break_after: int | None = None
    knows_ranges: bool = True
    status: int = 200
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def server():
    behaviour = Behaviour()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            behaviour.ranges.append(asked)
            if behaviour.status != 200:
                self.send_error(behaviour.status)
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and behaviour.knows_ranges else 0
            if start >= len(behaviour.content):
                self.send_error(416)
                return
            body = behaviour.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if behaviour.break_after is None else body[: behaviour.break_after])

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    behaviour.url = f"http://127.0.0.1:{http.server_port}/set.tar.gz"
    yield behaviour
    http.shutdown()
    thread.join()
    http.server_close()


def archive(behaviour, content=CONTENT):
    return Archive(behaviour.url, md5=hashlib.md5(content).hexdigest(), size=len(content))


def test_a_file_arrives_whole_with_progress(server, tmp_path):
    seen = []
    path = fetch_archive(archive(server), tmp_path / "new folder", lambda *state: seen.append(state))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert list(path.parent.iterdir()) == [path]


def test_a_right_file_is_not_fetched_again(server, tmp_path):
    for _ in range(2):
        fetch_archive(archive(server), tmp_path, lambda *_: None)
    assert len(server.ranges) == 1


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path, knows_ranges):
    server.break_after, server.knows_ranges = 1_500_000, knows_ranges
    with pytest.raises(OSError, match="rerun the same command"):
        fetch_archive(archive(server), tmp_path, lambda *_: None)
    assert not (tmp_path / "set.tar.gz").exists()
    stopped_at = (tmp_path / "set.tar.gz.part").stat().st_size
    assert 0 < stopped_at <= 1_500_000
    server.break_after = None
    assert fetch_archive(archive(server), tmp_path, lambda *_: None).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={stopped_at}-"]


def test_a_complete_part_is_taken_as_it_is(server, tmp_path):
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT)
    assert fetch_archive(archive(server), tmp_path, lambda *_: None).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server, tmp_path):
    server.content = CONTENT[::-1]
    with pytest.raises(ValueError, match=r"published is .*it was deleted"):
        fetch_archive(archive(server), tmp_path, lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_a_download_that_is_larger_than_published_is_cut_off(server, tmp_path):
    server.content = 3 * CONTENT
    seen = []
    with pytest.raises(ValueError, match=r"sends more than the [\d,]+ bytes that are published; what came was deleted"):
        fetch_archive(archive(server), tmp_path, lambda done, total: seen.append(done))
    assert max(seen) <= len(CONTENT)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_in_place_is_replaced(server, tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(b"damaged")
    assert fetch_archive(archive(server), tmp_path, lambda *_: None).read_bytes() == CONTENT


def test_a_refusing_or_absent_server_is_named(server, tmp_path):
    server.status = 503
    with pytest.raises(OSError, match=r"set\.tar\.gz answers 503"):
        fetch_archive(archive(server), tmp_path, lambda *_: None)
    with pytest.raises(OSError, match="could not be fetched"):
        fetch_archive(Archive("http://127.0.0.1:9/set.tar.gz", "0", 1), tmp_path, lambda *_: None)


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_unpacking_replaces_the_folder_as_a_whole(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").write_text("old")
    path = tar_of(tmp_path / "a.tar.gz", {"set/one": b"1", "set/two": b"2", "other/three": b"3"})
    folder = unpack_archive(path, tmp_path, "set")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"one": b"1", "two": b"2"}
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.tar.gz", "set"}


def test_members_that_would_land_elsewhere_are_left_out(tmp_path):
    inside = tmp_path / "data"
    inside.mkdir()
    path = tar_of(tmp_path / "a.tar.gz", {"set/one": b"1", "../set/../escaped": b"x", "/etc/set": b"x"})
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert [file.name for file in unpack_archive(path, inside, "set").iterdir()] == ["one"]
    with pytest.raises(ValueError, match="does not hold the folder set"):
        unpack_archive(tmp_path / "b.tar", inside, "set")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.tar.gz", "b.tar", "data"}


def test_a_truncated_archive_leaves_the_folder_as_it_was(tmp_path):
    (tmp_path / "set").mkdir()
    path = tar_of(tmp_path / "a.tar.gz", {"set/one": bytes(range(256)) * 4096})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises((EOFError, tarfile.ReadError)):
        unpack_archive(path, tmp_path, "set")
    assert not list((tmp_path / "set").iterdir())
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.tar.gz", "set"}
