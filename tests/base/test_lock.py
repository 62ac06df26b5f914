import itertools
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from uncollapse._base import lock as lock_module
from uncollapse._base.lock import FileLock, FolderOwner, InUseError


@pytest.fixture
def no_waiting(monkeypatch):
    def refuse(seconds):
        raise TimeoutError

    monkeypatch.setattr(time, "sleep", refuse)


def marker(host, pid, *, token="x", start=None):
    """A lock file as another process writes it."""
    lines = ["filelock/2", f"pid={pid}", f"host={host}", "mode=lease", f"token={token}"]
    lines += ["duration=600.0"] + ([] if start is None else [f"start={start}"])
    return "".join(f"{line}\n" for line in lines)


def own_host(tmp_path):
    """This machine as the lock files name it."""
    with FileLock(tmp_path / "own.lock") as lock:
        return fields(lock.path)["host"]


def fields(path):
    return dict(line.split("=") for line in path.read_text().split()[1:])


def dead_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def replace(path, text):
    """Put another lock file in the place of this one, as a take-over does."""
    aside = path.with_name("aside")
    aside.write_text(text)
    aside.replace(path)


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_held_lock_makes_others_wait_until_it_is_released(tmp_path, monkeypatch):
    path = tmp_path / "a.lock"
    first = FileLock(path).__enter__()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        first.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", wait)
    with FileLock(path):
        assert path.exists()
    assert waits == [0.1]
    assert list(tmp_path.iterdir()) == []


def test_a_living_holder_is_waited_for_until_it_gives_no_sign_of_life(tmp_path, no_waiting):
    path = tmp_path / "a.lock"
    with FileLock(path):
        age(path, 50)
        with pytest.raises(TimeoutError), FileLock(path):
            pass
        age(path, 70)
        with FileLock(path):
            pass


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path, no_waiting):
    path = tmp_path / "a.lock"
    path.write_text(marker(own_host(tmp_path), dead_process()))
    with FileLock(path):
        assert fields(path)["pid"] == str(os.getpid())


@pytest.mark.parametrize("holder", ["another machine", "a container of the same name", "a crash"])
def test_an_unseen_holder_is_gone_once_its_lock_is_not_refreshed(tmp_path, no_waiting, holder):
    path, host = tmp_path / "a.lock", own_host(tmp_path).partition("?")[0]
    content = {
        "another machine": marker("elsewhere", 1),
        "a container of the same name": marker(f"{host}?pidns-1", dead_process()),
        "a crash": "",
    }
    path.write_text(content[holder])
    for seconds in (0, 50):
        age(path, seconds)
        with pytest.raises(TimeoutError), FileLock(path):
            pass
    age(path, 70)
    with FileLock(path):
        assert fields(path)["pid"] == str(os.getpid())


@pytest.mark.parametrize("moment", ["before it is moved aside", "while it is moved aside"])
def test_an_old_lock_taken_over_meanwhile_stays_taken(tmp_path, no_waiting, monkeypatch, moment):
    path = tmp_path / "a.lock"
    path.write_text(marker("elsewhere", 1, token="dead"))
    age(path, 1000)
    touch, move = Path.touch, os.replace

    def touched(file):
        replace(path, marker("elsewhere", 2, token="alive"))
        touch(file)

    def moved(source, target):
        if source == path:
            replace(path, marker("elsewhere", 2, token="alive"))
        move(source, target)

    if moment == "before it is moved aside":
        monkeypatch.setattr(Path, "touch", touched)
    else:
        monkeypatch.setattr(os, "replace", moved)
    with pytest.raises(TimeoutError), FileLock(path):
        pass
    assert fields(path)["token"] == "alive"
    assert list(tmp_path.iterdir()) == [path]


def test_without_waiting_the_holder_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.lock"
    with FileLock(path), pytest.raises(InUseError, match=f"process {os.getpid()} on "):
        FileLock(path, wait=False).__enter__()
    path.write_bytes(b"\xff\xfe garbage")
    now = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(InUseError, match="unknown process"):
        FileLock(path, wait=False).__enter__()


def test_a_process_with_the_number_of_a_dead_holder_is_not_taken_for_it(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path) as lock:
        owner = fields(lock.path)
    if "start" not in owner:
        pytest.skip("this system does not say when a process began")
    path.write_text(marker(owner["host"], os.getpid(), start=int(owner["start"]) - 1))
    with FileLock(path, wait=False):
        assert fields(path)["start"] == owner["start"]


def test_a_clock_that_is_ahead_does_not_make_a_lock_stale(tmp_path, monkeypatch):
    path = tmp_path / "a.lock"
    path.write_text(marker("elsewhere", 1))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    with pytest.raises(InUseError):
        FileLock(path, wait=False).__enter__()
    assert list(tmp_path.iterdir()) == [path]


def test_a_holder_knows_whether_it_was_robbed(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path) as lock:
        assert lock.still_held()
        path.unlink()
        assert lock.still_held()  # removed by hand: taken again
        assert path.exists()
        replace(path, marker("elsewhere", 2))
        assert not lock.still_held()
        path.unlink()
        assert lock.still_held()
    assert list(tmp_path.iterdir()) == []
    with FileLock(path):
        replace(path, "someone else")
    assert path.read_text() == "someone else"  # the new holder's is left alone


def test_a_lock_is_refreshed_without_the_holders_doing(tmp_path, monkeypatch):
    path = tmp_path / "a.lock"
    monkeypatch.setattr(lock_module, "_STALE", 0.06)
    with FileLock(path):
        os.utime(path, (0, 0))
        for _ in range(1000):
            if path.stat().st_mtime > 0:
                break
            threading.Event().wait(0.01)
        assert path.stat().st_mtime > 0


def test_a_second_owner_is_told_who_has_the_folder_and_what_to_do(tmp_path):
    with FolderOwner(tmp_path), pytest.raises(InUseError, match=f"{os.getpid()}.*delete .*lock"):
        FolderOwner(tmp_path).__enter__()
    with FolderOwner(tmp_path):  # it was let go
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_nothing_is_not_left_behind(tmp_path):
    with FolderOwner(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()
    with FolderOwner(tmp_path / "new"):
        (tmp_path / "new" / "file").touch()
    assert (tmp_path / "new" / "file").exists()


def test_an_owner_that_was_away_for_too_long_writes_no_more(tmp_path):
    with FolderOwner(tmp_path) as owner:
        owner.check()
        replace(owner.path, "elsewhere 2 y")
        with pytest.raises(InUseError, match="taken over"):
            owner.check()
    assert owner.path.read_text() == "elsewhere 2 y"
