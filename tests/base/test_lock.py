import os
import subprocess
import sys
import time

import pytest

from uncollapse._base.lock import FileLock


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
