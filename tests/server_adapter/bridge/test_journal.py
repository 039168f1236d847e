"""What the adapter keeps of itself in its state directory."""

from pathlib import Path

import pytest

from schedd.wire import Alert
from server_adapter.bridge.journal import _KEPT, Journal, JournalError


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
    (tmp_path / "state.json").write_text("{")
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
