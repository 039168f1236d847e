"""What the adapter keeps of itself in its state directory."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from schedd.wire import Alert
from server_adapter.bridge.journal import _KEPT, Journal, JournalError, JournalWriteError


def test_a_second_adapter_is_locked_out_until_the_first_ends(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(JournalError, match="another pbs-adapter works with the state directory"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_a_directory_that_cannot_be_used_is_named_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="set state_dir to one that may be written"):
        Journal(tmp_path / "file")


@pytest.mark.parametrize(("ago", "known"), [(_KEPT - 1, True), (_KEPT, False)])
def test_runs_are_known_for_a_while_after_a_restart(tmp_path: Path, ago: float, known: bool) -> None:
    now = 2_000_000.0
    (tmp_path / "runs").write_text(f"{now - ago} 1.server d000000000001\ncut\n")
    journal = Journal(tmp_path, lambda: now)
    assert [job for _, job, _ in journal._recent_runs()] == (["1.server"] if known else [])
    journal.close()


def test_a_preempted_run_is_not_expected_to_start_after_a_restart_nor_requested_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, lambda: 2_000_000.0)
    for job, decision in (("1.server", "d1"), ("2.server", "d2"), ("3.server", "d3")):
        journal.record_request(job, decision)
    for job in ("1.server", "3.server", "4.server"):
        journal.record_preemption(job)
    journal.record_request("3.server", "d4")
    for _ in range(2):  # restarts
        journal.close()
        journal = Journal(tmp_path, lambda: 2_000_001.0)
        assert list(journal.requested) == ["2.server", "3.server"]
        assert journal.requested_before == {"d1", "d2", "d3", "d4"}
    journal.close()


def test_each_start_has_a_later_epoch_whatever_the_clock_says(tmp_path: Path) -> None:
    epochs = []
    for clock in (1000.0, 1000.0, 500.0, 9000.0):
        journal = Journal(tmp_path, lambda clock=clock: clock)  # type: ignore[misc]
        epochs.append(journal.epoch)
        journal.record_term(journal.term + 1)
        journal.close()
    assert epochs == [1000, 1001, 1002, 9000]


def alert(number: int, time: int) -> Alert:
    return Alert(id=f"d{number:012d}", cause="e", time=time, kind="snapshot", text="?", term=3)


def test_an_alert_is_new_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert [journal.record_alert(alert(*one)) for one in ((9, 5), (9, 5), (10, 5), (8, 7))] == [
        True, False, True, False,
    ]  # fmt: skip
    journal.close()
    again = Journal(tmp_path)
    assert [again.record_alert(alert(*one)) for one in ((10, 5), (11, 6))] == [False, True]
    again.close()


def test_alerts_after_the_daemons_clock_was_set_back_are_new(tmp_path: Path) -> None:
    """The first of them asks for the snapshot without which no job starts."""
    journal = Journal(tmp_path)
    assert journal.record_alert(alert(9, 9000))
    assert journal.record_alert(alert(10, 5000))
    assert not journal.record_alert(alert(9, 9000)), "offered again"
    journal.close()


def test_a_damaged_file_is_reported_with_its_name_and_a_remedy(tmp_path: Path) -> None:
    for text in ("{", "[1]", '{"epoch": "x"}', '{"extensions": 5}'):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(JournalError, match=r"state\.json is damaged .*; remove it"):
            Journal(tmp_path)


def test_holds_for_checkpoints_are_known_after_a_restart_until_they_are_lifted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record("7.srv")
    journal.close()
    again = Journal(tmp_path)
    assert again.is_set("7.srv")
    again.forget("7.srv")
    again.close()
    last = Journal(tmp_path)
    assert not last.is_set("7.srv")
    last.close()


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_the_start_is_reported_with_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(JournalError, match=f"{tmp_path}: No space left on device; make room on its disk"):
            Journal(tmp_path)
    Journal(tmp_path).close()  # and the lock is free


def test_requested_runs_are_forgotten_in_time_in_memory_and_in_the_file(tmp_path: Path) -> None:
    now = [2_000_000.0]
    journal = Journal(tmp_path, lambda: now[0])
    for number in range(10_000):
        now[0] += 1
        journal.record_request(f"{number}.server", f"d{number}")
    assert len(journal.requested) <= 2 * _KEPT
    assert len((tmp_path / "runs").read_text().splitlines()) <= 2 * _KEPT
    journal.close()
    again = Journal(tmp_path, lambda: now[0])
    assert set(again.requested) == {f"{number}.server" for number in range(10_000 - _KEPT, 10_000)}
    again.close()


def test_runs_are_known_although_the_adapter_was_killed_while_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.record_request("1.server", "d1")
    journal.close()
    replace = Path.replace

    def keep_runs(path: Path, target: Path) -> Path:
        return replace(path, target) if target.name != "runs" else full_disk()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", keep_runs)
        with pytest.raises(JournalError):
            Journal(tmp_path)
    again = Journal(tmp_path)
    assert again.requested_before == {"d1"}
    again.close()


def test_a_term_that_could_not_be_stored_is_stored_at_the_next_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(JournalWriteError, match="No space left"):
            journal.record_term(7)
        assert journal.record_alert(alert(1, 1)), "an alert that cannot be recorded is new"
    journal.record_term(7)
    journal.close()
    again = Journal(tmp_path)
    assert again.term == 7
    again.close()


def test_a_state_that_could_not_be_stored_is_stored_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert about it stayed open until the next alert, although starts went on."""
    journal = Journal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        journal.record_alert(alert(1, 1))
        journal.retry()
        assert journal.trouble.endswith("No space left on device")
    journal.retry()
    assert journal.trouble == ""
    journal.close()


@pytest.mark.parametrize("moved", ["runs", ""])
def test_moved_files_of_the_state_are_reported_and_refuse_runs_until_they_are_back(
    tmp_path: Path, moved: str
) -> None:
    """Records of runs went to the moved file, so that a restart would have started the jobs again."""
    place = tmp_path / "state"
    journal = Journal(place)
    (place / moved).rename(tmp_path / "away")
    journal.retry()
    assert str(place) in journal.trouble
    assert "moved or deleted while in use: put it back" in journal.trouble
    with pytest.raises(JournalWriteError, match="put it back"):
        journal.record_request("1.server", "d1")
    (tmp_path / "away").rename(place / moved)
    journal.retry()
    assert journal.trouble == ""
    journal.record_request("1.server", "d1")
    journal.close()
    again = Journal(place)
    assert again.requested_before == {"d1"}
    again.close()
