import os
import subprocess
import sys
import threading
import time

import pytest

from uncollapse._base.lock import FileLock, LockedError


def refuse_to_wait(seconds):
    raise TimeoutError


def test_a_held_lock_makes_others_wait_until_it_is_released(tmp_path):
    path = tmp_path / "a.lock"
    first = FileLock(path).__enter__()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        first.__exit__(None, None, None)

    with FileLock(path, sleep=wait, poll=0.25):
        assert path.exists()
    assert waits == [0.25]
    assert list(tmp_path.iterdir()) == []


def test_a_living_holder_is_waited_for_ten_times_as_long_and_then_taken_for_a_namesake(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path):
        os.utime(path, (time.time() - 300, time.time() - 300))
        with pytest.raises(TimeoutError), FileLock(path, sleep=refuse_to_wait):
            pass
        os.utime(path, (time.time() - 700, time.time() - 700))
        with FileLock(path, sleep=refuse_to_wait):
            pass


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    path = tmp_path / "a.lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path.write_text(f"{os.uname().nodename} {dead.pid} x")
    with FileLock(path, sleep=refuse_to_wait):
        assert path.read_text().split()[1] == str(os.getpid())


def test_a_lock_from_another_machine_is_stale_once_it_is_not_refreshed(tmp_path):
    path = tmp_path / "a.lock"
    path.write_text("elsewhere 1 x")
    with pytest.raises(TimeoutError), FileLock(path, sleep=refuse_to_wait):
        pass
    os.utime(path, (0, 0))
    with FileLock(path, sleep=refuse_to_wait) as lock:
        lock.refresh()
        assert path.stat().st_mtime > 1e9


def test_a_holder_that_was_robbed_leaves_the_new_lock_alone(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path):
        path.write_text("someone else")
    assert path.read_text() == "someone else"


def test_a_lock_says_who_holds_it(tmp_path):
    with FileLock(tmp_path / "a.lock") as lock:
        host, pid, _ = lock.path.read_text().split()
    assert (host, pid) == (os.uname().nodename, str(os.getpid()))


def test_a_lock_that_another_took_over_a_moment_ago_is_given_back(tmp_path):
    path = tmp_path / "a.lock"
    path.write_text("elsewhere 1 dead")
    os.utime(path, (0, 0))
    late = FileLock(path, sleep=refuse_to_wait)
    judge = late._stale

    def overtaken(holder):
        stale = judge(holder)
        if holder == "elsewhere 1 dead":
            path.write_text("elsewhere 2 alive")  # another waiter broke the lock and holds it
        return stale

    late._stale = overtaken
    with pytest.raises(TimeoutError), late:
        pass
    assert path.read_text() == "elsewhere 2 alive"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_left_empty_by_a_crash_is_waited_for_and_then_taken(tmp_path):
    path = tmp_path / "a.lock"
    path.touch()
    with pytest.raises(TimeoutError), FileLock(path, sleep=refuse_to_wait):
        pass
    os.utime(path, (0, 0))
    with FileLock(path, sleep=refuse_to_wait):
        assert path.read_text()


def test_without_waiting_the_holder_is_named(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path), pytest.raises(LockedError, match=f"process {os.getpid()} on "):
        FileLock(path, wait=False).__enter__()
    path.write_bytes(b"\xff\xfe garbage")
    with pytest.raises(LockedError, match="a process that has left no name"):
        FileLock(path, wait=False).__enter__()


def test_a_process_with_the_number_of_a_dead_holder_is_not_taken_for_it(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path) as lock:
        host, pid, rest = lock.path.read_text().split()
    name, namespace, started = rest.split(":")
    if not started:
        pytest.skip("this system does not say when a process began")
    path.write_text(f"{host} {pid} {name}:{namespace}:{int(started) - 1}")
    with FileLock(path, wait=False):
        assert path.read_text().endswith(f":{started}")


def test_a_container_of_the_same_name_is_another_machine(tmp_path):
    path = tmp_path / "a.lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path.write_text(f"{os.uname().nodename} {dead.pid} x:1:2")  # alive, for all we can see
    with pytest.raises(LockedError):
        FileLock(path, wait=False).__enter__()
    os.utime(path, (0, 0))
    with FileLock(path, wait=False):
        pass


def test_a_clock_that_is_ahead_does_not_make_a_lock_stale(tmp_path, monkeypatch):
    path = tmp_path / "a.lock"
    path.write_text("elsewhere 1 x")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    with pytest.raises(LockedError):
        FileLock(path, wait=False).__enter__()
    assert list(tmp_path.iterdir()) == [path]


def test_a_holder_knows_whether_it_was_robbed(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path) as lock:
        assert lock.still_held()
        path.unlink()
        assert lock.still_held()  # removed by hand: taken again
        path.write_text("elsewhere 2 y")
        assert not lock.still_held()


def test_a_beat_refreshes_the_lock_without_the_holders_doing(tmp_path):
    path = tmp_path / "a.lock"
    with FileLock(path, beat=0.01):
        os.utime(path, (0, 0))
        for _ in range(1000):
            if path.stat().st_mtime > 0:
                break
            threading.Event().wait(0.01)
        assert path.stat().st_mtime > 0


def test_without_links_the_lock_is_made_by_exclusive_creation(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", unsupported)
    path = tmp_path / "a.lock"
    with FileLock(path):
        with pytest.raises(LockedError):
            FileLock(path, wait=False).__enter__()
        assert list(tmp_path.iterdir()) == [path]
