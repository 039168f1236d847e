"""What the options of ``schedd replay`` mean; whatever cannot be understood is a TraceError."""

import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from schedd.dialect import RequestError, parse_size
from schedd.engine import EngineSettings
from schedd.optimize import SearchSettings
from schedd.plan.criteria import Criterion, parse_criteria
from schedd.plan.evaluate import CriterionWeights
from schedd.policy.site import site_policy
from schedd.policy.slack import Slack
from schedd.replay.comparison import GROUPS, POLICIES
from schedd.replay.driver import BACKFILL_POLICY, PLACEMENTS
from schedd.replay.limits import jobs_within_limits
from schedd.replay.prepared import Prepared, terms_not_in_logs
from schedd.replay.reservations import follow_reservations
from schedd.replay.searches import SEARCH_POLICY, SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.workload import TraceError
from schedd.service.settings.file import read_settings_file
from schedd.wire.toml_files import SettingsError


def parse_policies(named: list[str], words: list[str]) -> tuple[list[str], list[Path]]:
    """Policies and logs; `--policy fcfs easy` leaves `easy` among the logs, where it is no file."""
    known = known_policies()
    strays = [word for word in words if word in known and not Path(word).exists()]
    paths = [Path(word) for word in words if word not in strays]
    wanted: list[str] = []
    for name in [name for text in named for name in text.split(",")] + strays:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known_policies())}"
            raise TraceError(f"no policy {name!r}: {hint}")
        wanted += GROUPS.get(name, (name,))
    return list(dict.fromkeys(wanted)) or [POLICIES[0]], paths


def known_policies() -> list[str]:
    """All names that ``--policy`` takes."""
    return [*POLICIES, SEARCH_POLICY, *GROUPS]


def parse_slacks(text: str) -> list[Slack]:
    """Several with commas."""
    try:
        return [Slack.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise TraceError(f"--slack: {error}") from None


def parse_search(bounds: dict[str, Any], weights: str) -> SearchSchedule:
    """The searches of ``tabu``, as often as the daemon's."""
    more: dict[str, Any] = {"weights": _parse_weights(weights)} if weights else {}
    try:
        return SearchSchedule(search=SearchSettings(**bounds, **more))
    except ValueError as error:
        raise TraceError(f"--{error}") from None


def _parse_weights(text: str) -> dict[Criterion, float]:
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        weights = parse_criteria({name: float(value or "1") for name, _, value in pairs})
        CriterionWeights(weights)
    except ValueError:
        raise TraceError(
            f"--weights {text}: criteria with numbers, such as wait=1,wait_max=2; there are "
            f"{', '.join(Criterion)}"
        ) from None
    return weights


def expand_runs(
    policy: str, slacks: list[Slack], search: SearchSchedule, hold: int = 0
) -> list[tuple[str, str, dict[str, Any]]]:
    """Runs: name, the engine's policy, other arguments; ``hold``: of published starts, in seconds."""
    if policy == SEARCH_POLICY:
        return [
            (policy, PLANNING_POLICY, {"slack": slack, "searching": search, "hold": hold}) for slack in slacks
        ]
    if policy == PLANNING_POLICY:  # without a search, slack changes only the promises
        return [(policy, policy, {"slack": slacks[0]})]
    if policy == BACKFILL_POLICY:
        return [(policy, policy, {"slack": slack, "hold": hold}) for slack in slacks]
    if policy in PLACEMENTS:
        return [
            (policy, policy, {"slack": slack, "weights": search.weights, "hold": hold}) for slack in slacks
        ]
    return [(policy, policy, {})]


class SiteRun(NamedTuple):
    """What a site's daemon runs with; ``searching`` is None where it does not search."""

    source: str
    settings: EngineSettings
    searching: SearchSchedule | None

    @property
    def summary(self) -> str:
        """Summary of the replayed settings, in one line."""
        settings, how = self.settings, self.searching
        words = [f"slack {settings.slack}"]
        if settings.queue_slack:
            words.append(
                ", ".join(f"{slack} in queue {name}" for name, slack in settings.queue_slack.items())
            )
        words.append(f"policy: {', '.join(sorted(settings.site.plain)) or 'none'}")
        if absent := terms_not_in_logs(settings.site.plain):
            words.append(f"terms that logs do not have count as 0: {', '.join(absent)}")
        if how is None:
            words.append("no search (search_every = 0)")
        else:
            search = how.search
            bound = (
                f"{search.moves} moves" if search.moves is not None else f"{search.seconds:g} s of real time"
            )
            words.append(
                f"search every {how.every} s, {how.pause} s after capacity was freed, "
                f"newcomers after {how.newcomers} s; "
                f"{bound} each, where the daemon takes {settings.search_seconds:g} s"
            )
        return f"{self.source}: {'; '.join(words)}"


def load_site_run(path: Path | None, bounds: dict[str, Any]) -> SiteRun | None:
    """All settings of the first cluster of a schedd.toml, checked as the daemon does; None without a file."""
    if path is None:
        return None
    try:
        loaded = read_settings_file(path, auth={"anonymous": "reader"})
        name, cluster = next(iter(loaded.clusters.items()))
        settings = cluster.engine
        searching = (
            SearchSchedule.from_settings(settings, SearchSettings(**bounds))
            if settings.search_every
            else None
        )
    except SettingsError as error:
        raise TraceError(str(error)) from None
    except ValueError as error:
        raise TraceError(f"--{error}") from None
    return SiteRun(f"cluster {name} of {path}", settings, searching)


_QUEUE_ORDER: Final = ("priority", "fair_share")
"""Tables of a site's policy that the order of `multi-queue` depends on."""


def with_queue_order(
    run: tuple[str, str, dict[str, Any]], site: SiteRun | None
) -> tuple[str, str, dict[str, Any]]:
    """A run of `multi-queue` with the queue priorities and the shares of a site; other runs as they are."""
    name, policy, arguments = run
    if site is None or policy != "multi-queue":
        return run
    plain = site.settings.site.plain
    order = site_policy({table: plain[table] for table in _QUEUE_ORDER if plain.get(table) is not None})
    return name, policy, {**arguments, "settings": EngineSettings(site=order)}


def print_note(text: str) -> None:
    print(f"schedd replay: {text}", file=sys.stderr)


def within_site_limits(
    prepared: Prepared, site: SiteRun | None, note: Callable[[str], None] = print_note
) -> Prepared:
    """Leave out the jobs that the site's limits never allow, with a note of their number."""
    if site is None:
        return prepared
    kept, left_out = jobs_within_limits(prepared, site.settings.site)
    if left_out:
        note(f"{prepared.name}: {left_out:,} jobs left out: the limits never allow them")
    kept, unfollowed = follow_reservations(kept, site.settings.site)
    if unfollowed:
        note(
            f"{prepared.name}: {unfollowed:,} jobs run outside of the reservation that they name (advres): "
            "the policy has no recurring one without an end that could hold them"
        )
    return kept


def parse_kib(text: str | None) -> int | None:
    """A size in KiB, or with a unit."""
    if text is None or re.fullmatch(r"[0-9]{1,15}", text):
        return None if text is None else int(text)
    try:
        return parse_size(text)
    except RequestError as error:
        raise TraceError(f"--mem-per-node {text}: {error.comment}") from None
