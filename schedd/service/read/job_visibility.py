"""What one caller may see of other people's jobs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from schedd.engine.facts.records import JobRecord
from schedd.engine.show.job_view import Change, JobView
from schedd.engine.show.view import Published
from schedd.service.access.roles import Bearer
from schedd.service.questions.chain import without_others
from schedd.service.questions.explain import Explanation
from schedd.service.settings.file import AuthSettings

__all__ = ["ALL_JOBS", "JobVisibility", "visibility_for"]

_ID: Final = r"\d+(?:\[\d*\])?\.[\w.-]*\w"
_JOBS: Final = re.compile(rf"\bjobs? ({_ID}(?:, {_ID})*)")


@dataclass(frozen=True, slots=True)
class JobVisibility:
    """Whose jobs are seen: those of ``whose``, or all when that is None."""

    whose: Bearer | None = None

    @property
    def tag(self) -> str:
        """Tells answers apart that differ by who sees them."""
        return f"-{self.whose.name}" if self.whose is not None else ""

    def sees(self, record: JobRecord) -> bool:
        """Whether the job is shown."""
        return self.whose is None or self.whose.owns(record.facts.owner)

    def sees_owner(self, owner: str) -> bool:
        """Whether jobs of this owner are shown."""
        return self.whose is None or self.whose.owns(owner)

    def words(self, text: str, published: Published) -> str:
        """The text with the ids of jobs that are not seen replaced by their number."""
        if self.whose is None:
            return text
        return _JOBS.sub(self._counted(published), text)

    def view(self, view: JobView, published: Published) -> JobView:
        """A job that is seen, with other people's jobs as a number in what is said of it."""
        if self.whose is None:
            return view
        last = self.change(view.last_change, published) if view.last_change is not None else None
        notes = tuple(self.words(note, published) for note in view.notes)
        return replace(view, why=self.words(view.why, published), notes=notes, last_change=last)

    def change(self, change: Change, published: Published) -> Change:
        """A move of a job that is seen; events name jobs, too."""
        if self.whose is None:
            return change
        return replace(change, words=self.words(change.words, published), event="")

    def explanation(self, found: Explanation, published: Published) -> Explanation:
        """Why a job that is seen does not start sooner, with other people's jobs as a number."""
        if self.whose is None:
            return found
        shown = tuple(one for one in found.blockers if one.kind != "job" or self.sees_owner(one.owner))
        last = self.change(found.last_change, published) if found.last_change is not None else None
        return replace(
            found,
            blockers=shown,
            hidden=len(found.blockers) - len(shown),
            chain=tuple(
                replace(without_others(one, self.sees_owner), words=self.words(one.words, published))
                for one in found.chain
            ),
            why=self.words(found.why, published),
            last_change=last,
        )

    def _counted(self, published: Published) -> Callable[[re.Match[str]], str]:
        def counted(found: re.Match[str]) -> str:
            ids = found[1].split(", ")
            own = [one for one in ids if (job := published.ids.get(one)) is not None and self.sees(job)]
            count = len(ids) - len(own)
            if not count:
                return found[0]
            others = "another user's job" if count == 1 else f"{count} jobs of other users"
            return " and ".join([f"job {', '.join(own)}", others] if own else [others])

        return counted


ALL_JOBS: Final = JobVisibility()


def visibility_for(caller: Bearer, auth: AuthSettings, published: Published) -> JobVisibility:
    """What ``caller`` sees of a cluster: what the role allows, else what the site or the server does."""
    if caller.may("see all") or auth.others == "all":
        return ALL_JOBS
    if auth.others == "server" and published.server.open:
        return ALL_JOBS
    return JobVisibility(caller)
