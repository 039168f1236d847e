"""Going on under other settings: all are read and checked before any counts."""

import asyncio
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import structlog

from schedd.api.listening_sockets import load_certificate, log_certificate_fault, tls_context
from schedd.api.settings_resources import SettingsResources, load_resources
from schedd.engine import Engine
from schedd.service.access.callers import Callers
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.logs import configure_logging
from schedd.service.questions.promises_at_risk import promises_at_risk_by
from schedd.service.settings.changes import compare_settings
from schedd.service.settings.file import Settings
from schedd.service.systemd_notify import notify
from schedd.store import StoreError
from schedd.wire.settings_file import SettingsFiles
from schedd.wire.toml_files import SettingsError

_log = structlog.get_logger(__name__)
_MAX_DETAIL_LENGTH = 4_000
_PREVIEW_TIMEOUT_S = 20.0  # together with the planner's time less than systemd waits for a reload
_FILE_CHECK_S = 15.0
_PLANNER_TIMEOUT_S = 30.0  # a planner that is busy for longer takes its settings later


class SettingsReloader:
    """Reads the settings again when it is called; calls run one after the other.

    Meanwhile ``watch_files`` reports files of the settings that a restart could not read.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        clusters: Clusters,
        callers: Callers,
        tls: ssl.SSLContext | None,
        path: Path | None = None,
    ) -> None:
        """``path``: the settings file."""
        self.settings = settings
        self._path = path
        self._files = SettingsFiles(path, settings)
        self._rejected = self._unreadable = ""
        self._read = read
        self._clusters = clusters
        self._askers = callers
        self._tls = tls
        self._lock = asyncio.Lock()

    async def __call__(self) -> None:
        """Take the settings that are there now; where anything is wrong with them, none is taken."""
        async with self._lock:
            ready = self._clusters.ready  # not reported yet, and not by this
            if ready:
                _notify_manager("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")
            self._rejected = ""
            try:
                status = await self._reload()
            except SettingsError as error:
                first, *more = str(error).splitlines()
                why = f"{first} (and {len(more)} more)" if more else first  # `schedd config check` shows all
                self._rejected = f"the settings were rejected, and the previous ones stay in force: {why}"
                status = f"the settings stay as they are: {why}"
                _log.error("the settings stay unchanged", why=str(error))
                await asyncio.to_thread(self._note, (f"refused: {why}",))
            self._files = await asyncio.to_thread(SettingsFiles, self._path, self.settings)
            await self._check_files()
            if ready:
                _notify_manager("READY=1", f"STATUS={status}")

    async def watch_files(self) -> None:
        """Check at intervals that the settings file, and the files that it names, can still be read."""
        while True:
            await asyncio.sleep(_FILE_CHECK_S)
            await self._check_files()

    async def _check_files(self) -> None:
        why = await asyncio.to_thread(lambda: self._files.problem)
        if why and why != self._unreadable:
            _log.error("files of the settings cannot be read", why=why)
        self._unreadable = why
        for loop in self._clusters:
            loop.settings_problem = "; ".join(filter(None, (self._rejected, why)))

    async def _reload(self) -> str:
        new, parts = await asyncio.to_thread(self._checked)
        changes = compare_settings(self.settings, new)
        await self._name_owners(changes.settings)
        before, self.settings = self.settings, changes.settings
        configure_logging(new.log)
        self._askers.replace_settings(parts.tokens, new.auth, new.limits, parts.oidc)
        if self._tls is not None:
            load_certificate(self._tls, self.settings.server)
            log_certificate_fault(self._tls, self.settings.server)
        futures: list[Future[Any]] = []
        for loop in self._clusters:
            chosen = self.settings.clusters[loop.name]
            if chosen != before.clusters[loop.name]:
                try:
                    futures.append(loop.reconfigure(chosen.engine))
                except PlannerStopped as error:
                    _log.error("the planner takes no settings", cluster=loop.name, why=str(error))
        if futures:
            done, late = await asyncio.wait(map(asyncio.wrap_future, futures), timeout=_PLANNER_TIMEOUT_S)
            for failed in (one for one in done if not one.cancelled() and one.exception() is not None):
                _log.error("the planner takes no settings", why=str(failed.exception()))
            if late:
                _log.warning("planners are busy; they take their settings when they are free")
        await asyncio.to_thread(self._note, changes.now)
        _log.info("settings were read again", changed=changes.now, need_a_restart=changes.restart)
        words = f"settings read anew, {len(changes.now)} changed"
        return words + (f"; a restart is needed for {', '.join(changes.restart)}" if changes.restart else "")

    async def _name_owners(self, settings: Settings) -> None:
        """Name the owners of the promises that these settings put at risk, before the settings take effect:
        in the log, in the audit, and as an alert until their jobs have started.

        A preview that fails or takes too long does not prevent the reload: the next start of the daemon would
        apply the file in any case.
        """
        for loop in self._clusters:
            chosen = settings.clusters[loop.name].engine
            if loop.on_standby or chosen == self.settings.clusters[loop.name].engine:
                continue
            try:
                fork = await asyncio.wait_for(
                    asyncio.wrap_future(loop.call_between_batches(Engine.fork)), _PREVIEW_TIMEOUT_S
                )
                found = await asyncio.to_thread(
                    promises_at_risk_by, fork, chosen, loop.now(), _PREVIEW_TIMEOUT_S
                )
            except Exception as error:
                _log.warning("promises were not checked", cluster=loop.name, why=str(error) or repr(error))
                continue
            loop.reload_risk = found
            if found is not None:
                text = f"changed settings: {found.text}"
                _log.warning(text, cluster=loop.name)
                await asyncio.to_thread(self._note_promises, loop, text)

    def _note_promises(self, loop: PlanLoop, text: str) -> None:
        try:
            loop.audit("the host's admin", "reload", text)
        except PlannerStopped as error:
            _log.error("the owners were not noted in the audit", cluster=loop.name, why=str(error))

    def _checked(self) -> tuple[Settings, SettingsResources]:
        """The settings, and all that they name: nothing of it counts yet. Raises SettingsError.

        What waits for a restart is looked at, too: that is not to fail.
        """
        new = self._read()
        tls_context(self.settings.server)
        return new, load_resources(new)

    def _note(self, changed: tuple[str, ...]) -> None:
        if changed:
            try:
                self._clusters.audit("the host's admin", "reload", "; ".join(changed)[:_MAX_DETAIL_LENGTH])
            except StoreError as error:
                _log.error("it was not noted that the settings changed", why=str(error))


def _notify_manager(*words: str) -> None:
    try:
        notify(*words)
    except OSError as error:
        _log.warning("cannot report to the service manager", why=str(error))
