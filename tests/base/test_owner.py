import pytest

from uncollapse._base.lock import FolderOwner, InUseError


def test_a_second_owner_is_told_who_has_the_folder_and_what_to_do(tmp_path):
    sentence = r"written by process \d+ on .*wait.*delete .*\.lock"
    with FolderOwner(tmp_path), pytest.raises(InUseError, match=sentence):
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
        (tmp_path / "taken").write_text("elsewhere 2 y")
        (tmp_path / "taken").replace(tmp_path / ".lock")
        with pytest.raises(InUseError, match="taken over by another process"):
            owner.check()
    assert (tmp_path / ".lock").read_text() == "elsewhere 2 y"
