"""Visibility rules: what a caller may see of other users' jobs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from schedd.engine import Breach, Change, EndedPromise, JobRecord, JobView, PlanSnapshot, Risk
from schedd.service.access.roles import Bearer
from schedd.service.questions.explain import Explanation
from schedd.service.questions.explanation_chain import hide_other_jobs
from schedd.service.settings.auth import AuthSettings

_NUMBER: Final = r"\d+(?:\[\d*\])?"
_SERVER: Final = r"\.[\w.-]*\w"
_ID: Final = _NUMBER + _SERVER
_SHORT_ID: Final = f"{_NUMBER}(?:{_SERVER})?"
_JOBS: Final = re.compile(rf"\bjobs? ({_ID}(?:, {_ID})*)")
_SHORT_JOBS: Final = re.compile(rf"\bjobs? ({_SHORT_ID}(?:, {_SHORT_ID})*)(?![\w.])")
"""The same where ids lack the server's name (TORQUE's ``display_job_server_suffix = False``)."""


@dataclass(frozen=True, slots=True)
class JobVisibility:
    """Visible jobs: only the jobs of ``viewer``, or all jobs if it is None."""

    viewer: Bearer | None = None

    @property
    def cache_tag(self) -> str:
        """Part of the entity tag that distinguishes answers to different users."""
        return f"-{self.viewer.name}" if self.viewer is not None else ""

    def shows(self, record: JobRecord) -> bool:
        return self.viewer is None or self.viewer.owns(record.facts.owner)

    def shows_owner(self, owner: str) -> bool:
        return self.viewer is None or self.viewer.owns(owner)

    def redact_text(self, text: str, published: PlanSnapshot) -> str:
        """Replace the ids of invisible jobs by their number."""
        if self.viewer is None:
            return text
        jobs = chain(published.slotless.values(), published.records)
        known = next((job for job in jobs if job is not None), None)
        pattern = _JOBS if known is None or "." in known.id else _SHORT_JOBS
        return pattern.sub(self._hide_ids(published), text)

    def redact_view(self, view: JobView, published: PlanSnapshot) -> JobView:
        """Redact the view of a visible job: its texts and events name no invisible jobs."""
        if self.viewer is None:
            return view
        last = self.redact_change(view.last_change, published) if view.last_change is not None else None
        return replace(
            view,
            why=self.redact_text(view.why, published),
            notes=tuple(self.redact_text(note, published) for note in view.notes),
            last_change=last,
            at_risk=self.redact_risk(view.at_risk),
            breaches=self.redact_breaches(view.breaches),
        )

    def redact_risk(self, risk: Risk | None) -> Risk | None:
        """Redact the risk of a visible job; its event may name an invisible job."""
        return risk if self.viewer is None or risk is None else replace(risk, event="")

    def redact_breaches(self, breaches: tuple[Breach, ...]) -> tuple[Breach, ...]:
        """Redact the breaches of a visible job; their events may name invisible jobs."""
        return breaches if self.viewer is None else tuple(replace(one, event="") for one in breaches)

    def redact_ended_promise(
        self, ended: EndedPromise | None, published: PlanSnapshot
    ) -> EndedPromise | None:
        """Redact the previous promise of a visible job; its event may name an invisible job."""
        if self.viewer is None or ended is None:
            return ended
        return replace(ended, words=self.redact_text(ended.words, published), event="")

    def redact_change(self, change: Change, published: PlanSnapshot) -> Change:
        """Redact a move of a visible job; its event may name an invisible job."""
        if self.viewer is None:
            return change
        return replace(change, words=self.redact_text(change.words, published), event="")

    def redact_explanation(self, found: Explanation, published: PlanSnapshot) -> Explanation:
        """Redact the explanation of a visible job: invisible blockers become a number."""
        if self.viewer is None:
            return found
        shown = tuple(one for one in found.blockers if one.kind != "job" or self.shows_owner(one.owner))
        last = self.redact_change(found.last_change, published) if found.last_change is not None else None
        return replace(
            found,
            blockers=shown,
            hidden=len(found.blockers) - len(shown),
            chain=tuple(
                replace(hide_other_jobs(one, self.shows_owner), words=self.redact_text(one.words, published))
                for one in found.chain
            ),
            ahead=tuple(hide_other_jobs(one, self.shows_owner) for one in found.ahead),
            why=self.redact_text(found.why, published),
            last_change=last,
        )

    def _hide_ids(self, published: PlanSnapshot) -> Callable[[re.Match[str]], str]:
        def counted(found: re.Match[str]) -> str:
            ids = found[1].split(", ")
            own = [one for one in ids if (job := published.ids.get(one)) is not None and self.shows(job)]
            count = len(ids) - len(own)
            if not count:
                return found[0]
            others = "another user's job" if count == 1 else f"{count} jobs of other users"
            return " and ".join([f"job {', '.join(own)}", others] if own else [others])

        return counted


ALL_JOBS: Final = JobVisibility()


def visibility_for(caller: Bearer, auth: AuthSettings, published: PlanSnapshot) -> JobVisibility:
    """Return the visibility for a caller: by its role, else by the site's or the server's rule."""
    if caller.may("see all") or auth.others == "all":
        return ALL_JOBS
    if auth.others == "server" and published.server.open:
        return ALL_JOBS
    return JobVisibility(caller)
