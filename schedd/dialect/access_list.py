"""Access lists of queues and servers (``acl_users`` and others), evaluated as both families do."""

from collections.abc import Collection, Mapping


def admits_user(printed: str, user: str) -> bool:
    """Return whether a list such as ``ann,bob@*.site,-eve`` admits a user; ``user`` may have a host.

    The first matching entry decides; ``-`` before a name refuses it; a lone ``+`` or ``-`` is the answer for
    all others, which is a refusal without one. A user without a host matches each host of an admitting
    entry, and only a refusing entry for all hosts: in doubt, nobody is refused.
    """
    name, _, host = user.partition("@")

    def matches(entry: str, *, refusing: bool) -> bool:
        wanted, at, where = entry.partition("@")
        if wanted != name:
            return False
        if not at or where == "*":
            return True
        return _matches_host(host, where) if host else not refusing

    default = False
    for entry in _entries(printed):
        refusing = entry.startswith("-")
        if entry in ("+", "-"):
            default = not refusing
        elif matches(entry.lstrip("+-"), refusing=refusing):
            return not refusing
    return default


def admits_group(printed: str, groups: Collection[str]) -> bool:
    """Return whether a list of groups admits a member of these groups; see ``admits_user``."""
    default = False
    for entry in _entries(printed):
        if entry in ("+", "-"):
            default = entry == "+"
        elif entry.lstrip("+-") in groups:
            return not entry.startswith("-")
    return default


def admits_host(printed: str, host: str) -> bool:
    """Return whether a list of hosts such as ``login1.site,*.cluster.site,-bad.site`` admits a host; see
    ``admits_user``.

    A name without a domain matches the host of that name in any domain: in doubt, no user is refused.
    """
    default = False
    for entry in _entries(printed):
        pattern = entry.lstrip("+-")
        if not pattern:
            default = entry == "+"
        elif _matches_host(host, pattern) or (not entry.startswith("-") and _is_short_form(host, pattern)):
            return not entry.startswith("-")
    return default


def is_true(attributes: Mapping[str, str], name: str) -> bool:
    """Return whether a boolean attribute is set, as either family prints it."""
    return attributes.get(name, "").strip().lower() in ("true", "t", "1", "yes", "y")


def _entries(printed: str) -> list[str]:
    return [entry for part in printed.split(",") if (entry := part.strip())]


def _matches_host(host: str, pattern: str) -> bool:
    host, pattern = host.lower(), pattern.lower()
    return host.endswith(pattern[1:]) if pattern.startswith("*") else host == pattern


def _is_short_form(one: str, other: str) -> bool:
    """Whether one name has a domain and the other is the same name without it."""
    (short, _, domain), (other_short, _, other_domain) = (
        one.lower().partition("."),
        other.lower().partition("."),
    )
    return short == other_short and bool(domain) != bool(other_domain)
