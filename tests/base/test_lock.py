import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from uncollapse._base.lock import FileLock, InUseError


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
    process = subprocess.Popen([sys.executable, "-c", ""])
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


def test_the_lock_of_a_dead_process_is_taken_over_where_names_cannot_be_exchanged(
    tmp_path, no_waiting, monkeypatch
):
    import filelock._soft

    if not hasattr(filelock._soft, "exchange_names"):
        pytest.skip("this filelock renames")
    monkeypatch.setattr(filelock._soft, "exchange_names", lambda *_: False)
    path = tmp_path / "a.lock"
    path.write_text(marker(own_host(tmp_path), dead_process()))
    age(path, 70)
    with FileLock(path):
        assert fields(path)["pid"] == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_a_lock_from_another_machine_is_stale_once_it_is_not_refreshed(tmp_path, no_waiting):
    path = tmp_path / "a.lock"
    path.write_text(marker("elsewhere", 1))
    with pytest.raises(TimeoutError), FileLock(path):
        pass
    age(path, 70)
    with FileLock(path):
        assert fields(path)["pid"] == str(os.getpid())


def test_a_holder_that_was_robbed_leaves_the_new_lock_alone(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path):
        replace(path, "someone else")
    assert path.read_text() == "someone else"


def test_a_lock_says_who_holds_it(tmp_path):
    with FileLock(tmp_path / "a.lock") as lock:
        owner = fields(lock.path)
    assert owner["host"].startswith(socket.gethostname())
    assert owner["pid"] == str(os.getpid())


def test_a_lock_that_another_took_over_a_moment_ago_is_left_alone(
    tmp_path, no_waiting, monkeypatch
):
    path = tmp_path / "a.lock"
    path.write_text(marker("elsewhere", 1, token="dead"))
    age(path, 1000)
    touch = Path.touch

    def overtaken(file):
        replace(path, marker("elsewhere", 2, token="alive"))  # another waiter took it meanwhile
        touch(file)

    monkeypatch.setattr(Path, "touch", overtaken)
    with pytest.raises(TimeoutError), FileLock(path):
        pass
    assert fields(path)["token"] == "alive"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_that_another_machine_took_over_a_moment_ago_is_given_back(
    tmp_path, no_waiting, monkeypatch
):
    path = tmp_path / "a.lock"
    path.write_text(marker("elsewhere", 1, token="dead"))
    age(path, 1000)
    move = os.replace

    def overtaken(source, target):
        if source == path:
            replace(path, marker("elsewhere", 2, token="alive"))
        move(source, target)

    monkeypatch.setattr(os, "replace", overtaken)
    with pytest.raises(TimeoutError), FileLock(path):
        pass
    assert fields(path)["token"] == "alive"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_left_empty_by_a_crash_is_waited_for_and_then_taken(tmp_path, no_waiting):
    path = tmp_path / "a.lock"
    path.touch()
    with pytest.raises(TimeoutError), FileLock(path):
        pass
    age(path, 70)
    with FileLock(path):
        assert path.read_text()


def test_without_waiting_the_holder_is_named(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path), pytest.raises(InUseError, match=f"process {os.getpid()} on "):
        FileLock(path, wait=False).__enter__()
    path.write_bytes(b"\xff\xfe garbage")
    with pytest.raises(InUseError, match="a process that has left no name"):
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


def test_a_container_of_the_same_name_is_another_machine(tmp_path):
    path = tmp_path / "a.lock"
    host = own_host(tmp_path).partition("?")[0]
    path.write_text(marker(f"{host}?pidns-1", dead_process()))  # alive, for all we can see
    with pytest.raises(InUseError):
        FileLock(path, wait=False).__enter__()
    age(path, 70)
    with FileLock(path, wait=False):
        pass


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


def test_a_lock_is_refreshed_without_the_holders_doing(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path, stale_after=0.06):
        os.utime(path, (0, 0))
        for _ in range(1000):
            if path.stat().st_mtime > 0:
                break
            threading.Event().wait(0.01)
        assert path.stat().st_mtime > 0
