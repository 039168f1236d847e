"""Warnings about valid settings that are probably unintended."""

from collections.abc import Iterator
from pathlib import Path

from schedd.policy.feature_settings import cluster_fields, feature_settings
from schedd.service.settings.feature_tables import daemon_tables
from schedd.service.settings.file import Settings
from schedd.service.settings.site import SiteSettings


def settings_advice(settings: Settings) -> Iterator[str]:
    """Yield one line for each such setting."""
    server, auth = settings.server, settings.auth
    if not server.local and server.tls_certificate is None:
        yield f"server.allow_remote: tokens travel readably to {server.host}, as there is no tls_certificate"
    if auth.anonymous != "none" and not server.local:
        yield f"auth.anonymous: everybody who reaches {server.host} may read all jobs"
    if not (auth.token_file or auth.tokens or server.socket or auth.munge) and auth.anonymous == "none":
        yield "auth: the settings name no tokens; nobody has access without `schedd token create`"
    if server.tls_key is not None and _others_may_read(server.tls_key):
        yield f"server.tls_key: others may read {server.tls_key}; chmod 0600 {server.tls_key}"
    if auth.munge and "root" in auth.admins:
        yield "auth.admins: with munge, root of every host that has the key is an admin"
    for table in daemon_tables():
        for line in table.advice(settings.part(table.model)):
            yield f"{table.table}.{line}"
    if settings.store.url == "memory":
        yield "store.url: nothing is kept beyond the process, neither promises nor a pause"
    for name, cluster in settings.clusters.items():
        where = f"clusters.{name}"
        if cluster.mem_per_core == 0:
            yield f"{where}.mem_per_core: jobs that ask for no memory are planned as if they needed none"
        if cluster.slack == "0":
            yield f"{where}.slack: promises leave no room, so that no job may be planned before an older one"
        if cluster.slack == "off" and cluster.policy == "conservative":
            yield f"{where}.slack: jobs are told when they start, and promised nothing"
        for fields in cluster_fields():
            if fields.advice is not None:
                yield from (f"{where}.{line}" for line in fields.advice(cluster))
        yield from _about_site(f"{where}.site", cluster.site)
        if cluster.validate_:
            yield f"{where}.validate: every batch is checked; much too slow for production"
        if not cluster.alone:
            yield f"{where}.alone: another scheduler beside this one would not be noticed"
        if cluster.policy != "conservative":
            yield f"{where}.policy: {cluster.policy} plans no starts; no job has a planned or promised one"


def _about_site(where: str, site: SiteSettings) -> Iterator[str]:
    for feature in feature_settings():
        for line in feature.advice(site.plain) if feature.advice is not None else ():
            yield f"{where}.{line}"


def _others_may_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False
