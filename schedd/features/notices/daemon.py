"""Notices as a service of the daemon: one notifier for each cluster, if the site sends notices."""

from functools import partial
from typing import TYPE_CHECKING

from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.mail_relay import load_relay
from schedd.service.settings.file import Settings

if TYPE_CHECKING:
    from schedd.features.notices.notifier import Notifier
    from schedd.service.clusters import Clusters


def check_resources(settings: Settings) -> None:
    """Raise SettingsError if the files that ``[notify]`` names cannot be used."""
    load_relay(settings.part(NotifySettings))


def daemon_services(settings: Settings, clusters: "Clusters") -> "list[Notifier]":
    """Return the notifiers of all clusters; none without a database."""
    # Imported late: a check of the settings does not need the engine, whose kernels take a second to load.
    from schedd.features.notices.notifier import Notifier  # noqa: PLC0415

    durable = clusters.durable
    notify = settings.part(NotifySettings)
    if not notify.on or durable is None:
        return []
    return [
        Notifier(one, notify, durable.opened_store, forecast=partial(clusters.forecast, one.name))
        for one in clusters
    ]
