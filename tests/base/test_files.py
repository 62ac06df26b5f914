import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.errors import refused
from uncollapse._base import files
from uncollapse._base.files import DamagedFileError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Crash(BaseException):
    """Not an Exception: what Ctrl-C and the end of the interpreter are like."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Crash])
def test_an_error_in_the_middle_of_a_write_leaves_the_old_file_and_nothing_else(tmp_path, error):
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def write_half():
        with files.written_aside(target) as aside, aside.open("wb") as file:
            file.write(b"half of the n")
            raise error

    with pytest.raises(error):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


KILLED = """
import os, signal, sys
from pathlib import Path
from uncollapse._base.files import written_aside
with written_aside(Path(sys.argv[1])) as aside, aside.open("wb") as file:
    file.write(b"half of the n")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.processes
def test_a_writer_that_is_killed_leaves_the_old_file_as_it_was(tmp_path):
    target = tmp_path / "a.txt"
    files.write_text(target, "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    files.write_text(target, "new")
    assert target.read_text() == "new"


def test_what_cannot_be_renamed_or_synced_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    for name in ("sync", "_put"):
        with monkeypatch.context() as patch:
            patch.setattr(files, name, full)
            with pytest.raises(OSError, match="No space"):
                files.write_text(target, "new")
        assert target.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]


def test_folders_are_made_and_the_suffix_stays_for_writers_that_go_by_it(tmp_path):
    target = tmp_path / "deep" / "down" / "a.tar.png"
    with files.written_aside(target) as aside:
        assert aside.parent == target.parent
        assert aside.suffix == ".png"
        assert aside.name.startswith(".")
        aside.write_bytes(b"x")
    assert names(target.parent) == ["a.tar.png"]


def test_a_folder_takes_the_place_of_an_old_one_as_a_whole(tmp_path):
    target = tmp_path / "run"
    (target / "inner").mkdir(parents=True)
    (target / "inner" / "old").write_text("old")
    with files.written_aside(target, folder=True) as aside:
        (aside / "new").write_text("new")
        assert (target / "inner" / "old").read_text() == "old"
    assert names(target) == ["new"]
    assert names(tmp_path) == ["run"]


@pytest.mark.parametrize("fails", ["the writer", "the last rename"])
def test_a_folder_that_fails_leaves_the_old_one(tmp_path, monkeypatch, fails):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("old")
    rename = os.replace

    def fails_into_place(source, there):
        if there == target and not (source / "old").exists():
            raise OSError(5, "Input/output error")
        rename(source, there)

    def write():
        with files.written_aside(target, folder=True) as aside:
            (aside / "new").write_text("new")
            if fails == "the writer":
                raise OSError

    monkeypatch.setattr(files.os, "replace", fails_into_place)
    with pytest.raises(OSError):  # noqa: PT011
        write()
    assert (names(tmp_path), names(target)) == (["run"], ["old"])


def test_json_and_csv_come_back_as_they_were_written(tmp_path):
    value = {"a": [1, 2.5, None, "ä\u2028"], "b": {"c": True}}
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json") == value
    rows = [["1", "two\nlines"], ['with "quotes"', "comma, and\x0bmore\u2028"]]
    files.write_csv(tmp_path / "a.csv", ["x", "y"], rows)
    assert list(files.csv_rows(tmp_path / "a.csv")) == [["x", "y"], *rows]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx,y\r\n1,2\r\n")
    assert list(files.csv_rows(tmp_path / "a.csv")) == [["x", "y"], ["1", "2"]]
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert list(files.read_jsonl(tmp_path / "a.jsonl")) == [{"a": 1}]


def test_short_rows_are_filled_where_that_is_asked_for(tmp_path):
    (tmp_path / "a.csv").write_text("x;y\n1\n\n2;3\n")
    rows = [["x", "y"], ["1", ""], ["2", "3"]]
    assert list(files.csv_rows(tmp_path / "a.csv", fill=True, separator=";")) == rows


@pytest.mark.parametrize(
    ("reader", "content", "message"),
    [
        (files.read_json, b'{"a": 1,\n "b": }', "not JSON .*line 2 column 7"),
        (files.read_json, b"", "not JSON"),
        (files.read_json, b"[1, 2]", "expected a dict, found list"),
        (files.read_json, b'{"a": "\xe4"}', "not JSON in UTF-8 .*byte 0xe4"),
        (files.read_jsonl, b'{"a": 1}\n{"a": \n{"a": 3}\n', "line 2 is not JSON"),
        (files.read_jsonl, b'{"a": 1}\n[2]\n', "line 2 is not a JSON object"),
        (files.read_jsonl, b'{"a": "\xe4"}\n{"a": 2}\n', "line 1 is not JSON"),
        (files.csv_rows, b"a,b\n1,2\n3\n", "line 3 has 1 cells, the header 2"),
        (files.csv_rows, b'a,b\n"x\ny",2\n3,4,5\n', "line 4 has 3 cells, the header 2"),
        (files.csv_rows, b'a,b\n1,"cut sh', "from line 2 on: unexpected end of data"),
        (files.csv_rows, b"", "it is empty"),
        (files.csv_rows, b"a,b\n\xff,2\n", "from line 0 on: 'utf-8' .*byte 0xff"),
        (files.read_toml, b"a = 1\nb = = 2\n", "not TOML .*line 2, column 5"),
        (files.read_toml, b"\xff\xfe", "not TOML in UTF-8"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(tmp_path, reader, content, message):
    path = tmp_path / "some.file"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=message) as raised:
        list(reader(path))
    assert raised.value.path == path
    assert str(raised.value).startswith(f"{path} is damaged: ")


@pytest.mark.parametrize(
    "reader", [files.read_json, files.read_jsonl, files.csv_rows, files.read_toml]
)
def test_a_missing_file_is_missing_not_damaged(tmp_path, reader):
    with pytest.raises(FileNotFoundError):
        list(reader(tmp_path / "gone"))


@pytest.mark.parametrize("tail", [b'{"step": 3, "lo', b'{"step": 3, "name": "\xc3', b"\0\0\0"])
def test_a_last_line_that_a_crash_cut_short_is_left_out(tmp_path, tail):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n\n{"step": 2}\n' + tail)
    assert [row["step"] for row in files.read_jsonl(path)] == [1, 2]


def test_a_last_line_that_is_whole_counts_without_its_newline(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}')
    assert len(list(files.read_jsonl(tmp_path / "log.jsonl"))) == 2


def test_a_log_goes_on_from_the_offset_that_was_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    with files.open_log(path) as log:
        log.write('{"step": 1}\n')
        kept = log.tell()
        log.write('{"step": 2}\n')
    with path.open("a") as file:
        file.write('{"step": 3, "cut')
    with files.open_log(path, keep=kept) as log:
        log.write('{"step": 20}\n')
    assert [row["step"] for row in files.read_jsonl(path)] == [1, 20]
    with files.open_log(path, keep=10**9) as log:  # more than there is: all of it
        log.write('{"step": 30}\n')
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 20, 30]


# What the target is: a link, a device, a pipe, a folder.


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.txt").write_text("old")
    (tmp_path / "near.txt").symlink_to("far/a.txt")
    (tmp_path / "twice.txt").symlink_to("near.txt")
    files.write_text(tmp_path / "twice.txt", "new")
    assert (tmp_path / "twice.txt").is_symlink()
    assert (tmp_path / "near.txt").is_symlink()
    assert (tmp_path / "far" / "a.txt").read_text() == "new"
    assert names(tmp_path / "far") == ["a.txt"]


def test_a_link_to_nothing_gets_its_target(tmp_path):
    (tmp_path / "near.txt").symlink_to("later/a.txt")
    files.write_text(tmp_path / "near.txt", "new")
    assert os.readlink(tmp_path / "near.txt") == "later/a.txt"
    assert (tmp_path / "later" / "a.txt").read_text() == "new"


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes are files on POSIX only")
class TestDevicesAndPipes:
    def test_a_device_is_written_and_never_replaced(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files.os, "replace", lambda *_: pytest.fail("renamed onto a device"))
        (tmp_path / "link").symlink_to(os.devnull)
        for path in (Path(os.devnull), tmp_path / "link"):
            files.write_text(path, "gone")
            assert path.is_char_device()
        assert (tmp_path / "link").is_symlink()

    def test_a_pipe_gets_the_bytes_and_stays(self, tmp_path):
        pipe = tmp_path / "a.png"
        os.mkfifo(pipe)
        end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that no writer waits for a reader
        try:
            with files.written_aside(pipe) as aside:
                assert aside.suffix == ".png"
                aside.write_bytes(b"all of it")
            assert os.read(end, 100) == b"all of it"
        finally:
            os.close(end)
        assert pipe.is_fifo()
        assert names(tmp_path) == ["a.png"]

    def test_an_open_file_is_written_where_it_stands(self, tmp_path):
        with (tmp_path / "out.txt").open("wb") as out:
            out.write(b"first\n")
            out.flush()
            files.write_text(Path(f"/dev/fd/{out.fileno()}"), "second\n")
        assert (tmp_path / "out.txt").read_bytes() == b"first\nsecond\n"
        assert names(tmp_path) == ["out.txt"]

    @pytest.mark.processes
    def test_standard_output_keeps_what_was_printed_around_it(self, tmp_path):
        with (tmp_path / "out.txt").open("wb") as out:
            subprocess.run([sys.executable, "-c", PRINTED], stdout=out, check=True)
        assert (tmp_path / "out.txt").read_bytes() == b"before\nall\nafter\n"

    def test_a_full_disk_is_an_error_that_names_the_file(self):
        with pytest.raises(OSError, match="No space left") as error:
            files.write_text(Path("/dev/full"), "x")
        assert error.value.filename == "/dev/full"


PRINTED = """
from pathlib import Path
from uncollapse._base.files import write_text
print("before")
write_text(Path("/dev/stdout"), "all\\n")
print("after")
"""


def test_a_disk_that_fills_up_names_the_file_and_leaves_the_old_one(tmp_path):
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def write_half():
        with files.written_aside(target) as aside:
            aside.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as error:
        write_half()
    assert error.value.filename == str(target)
    assert (names(tmp_path), target.read_text()) == (["a.txt"], "old")


def test_a_folder_is_refused_where_a_file_is_to_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, Path("."), tmp_path / "link"):
        with refused("output"):
            files.write_text(folder, "x")
    assert names(tmp_path) == ["link"]


def test_a_full_disk_that_a_library_tells_in_an_error_of_its_own_is_the_same_error(tmp_path):
    from safetensors import SafetensorError

    target = tmp_path / "a.safetensors"
    told = SafetensorError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    )
    with pytest.raises(OSError, match="No space left") as error, files.written_aside(target):
        raise told
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(target))
    assert list(tmp_path.iterdir()) == []
