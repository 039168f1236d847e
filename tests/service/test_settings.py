"""Settings and tokens: rejected values, and remedies in the messages."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from schedd.cli.serve import run as serve
from schedd.features.fair_share.settings import FairShareSettings
from schedd.model import FOREVER
from schedd.policy.limits import Limit
from schedd.policy.priority import JobClass
from schedd.policy.slack import OFF, Slack
from schedd.service.access.tokens import Tokens, read_token_file
from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.effective import effective_settings
from schedd.service.settings.file import read_settings_file
from schedd.wire.toml_files import SettingsError

AUTH = '[auth]\nanonymous = "reader"\n'
LIMIT = AUTH + "[[clusters.main.site.limits]]\namount = 1\n"
WINDOW = (
    "[[clusters.main.site.limits]]\namount = 1\nfirst = 2026-01-05T08:00:00\nlast = 2026-01-05T09:00:00\n"
)
RESERVATION = AUTH + (
    "[clusters.main.site.reservations.m]\nfirst = 2026-01-05T08:00:00\nlast = 2026-01-05T09:00:00\n"
)
TOKEN = "0123456789abcdef0123456789abcdef"


def write_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nports = 1", "server.ports: no such setting; did you mean port?"),
        (
            "[clusters.a]\nx1 = 1",
            "clusters.a.x1: no such setting; `schedd config reference` lists all settings",
        ),
        (AUTH + "[server]\nport = 99999", "server.port: it must be at most 65535"),
        (AUTH + '[server]\nhost = "0.0.0.0"', "can be reached from other machines"),
        (AUTH + "[clusters.main.queue_slack]\nlong = 'soon'", "clusters.main.queue_slack.long: "),
        (AUTH + "[clusters.main.queue_slack]\nlong = '9999d'", "at most ten years (316224000 s), or off"),
        *(
            (
                AUTH + f"[clusters.main]\nslack = {text}",
                "clusters.main.slack: slack ",
            )
            for text in ("'soon'", "1.5", "-1", "316224001", "true", "[1]", "''")
        ),
        (AUTH + "[clusters.main]\nslak = 3", "clusters.main.slak: no such setting; did you mean slack?"),
        (AUTH + '[clusters."a b"]', "a name has letters"),
        (AUTH + '[store]\nurll = ""', "store.urll: no such setting; did you mean url?"),
        (AUTH + "[clusters.main.site]\nlimit = 1", "site.limit: no such setting; did you mean limits?"),
        (
            AUTH + "[clusters.main.site.priority]\nwait = 1",
            "priority.wait: no such setting; did you mean waiting?",
        ),
        (
            AUTH + "[clusters.main.site.classes.a]\npoint = 1",
            "a.point: no such setting; did you mean points?",
        ),
        (
            AUTH + "[[clusters.main.site.limits]]\nmost = 1",
            "limits.0.most: no such setting; did you mean amount?",
        ),
        (AUTH + '[[clusters.main.site.limits]]\namount = 1\nname = "ann"', "name 'ann' needs who"),
        (
            AUTH + '[clusters.main.site.fair_share.shares]\n"a/b/c" = 1',
            "shares.a/b/c: the tree has the levels",
        ),
        (AUTH + "[clusters.main.site.priority]\nfair_share = 1", "there is no table fair_share"),
        (AUTH + "[clusters.main.site.priority]\ndeadline_least = 30", "must not be more than deadline_most"),
        (
            AUTH + '[clusters.main.site.priority]\nmode = "heavy"',
            "priority.mode: it must be 'full' or 'light'",
        ),
        (LIMIT + "first = 2026-01-05T08:00:00", "first and last are needed together"),
        (LIMIT + 'rule = "FREQ=DAILY"', "rule and without need first and last"),
        (LIMIT + "first = 2026-01-05T08:00:00Z\nlast = 2026-01-05T09:00:00", "without an offset"),
        (LIMIT + "first = 2026-01-05T08:00:00\nlast = 2026-01-05T07:00:00", "it must end later"),
        (
            LIMIT + 'first = 2026-01-05T08:00:00\nlast = 2026-01-05T09:00:00\nrule = "FREQ=HOURLY"',
            "FREQ must be one of DAILY",
        ),
        (AUTH + '[clusters.main.site]\nzone = "Atlantis"\n' + WINDOW, "no time zone 'Atlantis'"),
        (RESERVATION, "set exactly one of nodes, features and everywhere"),
        (RESERVATION + 'everywhere = true\nnodes = ["n1"]', "set exactly one"),
        (RESERVATION + 'everywhere = true\nuser = ["ann"]', "m.user: no such setting; did you mean users?"),
        (RESERVATION + "everywhere = true\ntotal = true", "a reservation of cores, gpus or memory"),
        (
            RESERVATION + "everywhere = true\ncores = -1",
            "m.cores: it must be at least 0",
        ),
        (RESERVATION + 'everywhere = true\nrule = "FREQ=MINUTELY"', "FREQ must be one of DAILY"),
        (AUTH + "[clusters.main.site.licences.matlab]\nfree = true", "copies, command or lent must be set"),
        (AUTH + "[clusters.main.site.licences.matlab]\ncopy = 3", "did you mean copies?"),
        ("[server", "toml"),
        ('[store]\nurl = "memory"', "there are no tokens"),
        (AUTH + '[server]\nhost = "::"\ntls_certificate = "c"', "lets everybody read who reaches ::"),
        (AUTH + '[server]\ntls_key = "k"', "tls_key needs a tls_certificate"),
        ('[[auth.tokens]]\nname = "x"\nrole = "boss"\nsha256 = "00"', "auth.tokens.0.role"),
    ],
)
def test_invalid_file_is_refused_with_its_name_and_the_error(tmp_path: Path, text: str, said: str) -> None:
    path = write_file(tmp_path / "schedd.toml", text)
    with pytest.raises(SettingsError) as refused:
        read_settings_file(path)
    assert str(path) in str(refused.value)
    assert said in str(refused.value) or said in str(refused.value).lower()


def test_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: no such file"):
        read_settings_file(tmp_path / "none.toml")


@pytest.mark.parametrize("load_", [read_settings_file, lambda path: serve(["--config", str(path)])])
def test_directory_or_malformed_file_is_named_in_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], load_: Callable[[Path], object]
) -> None:
    for path, said in (
        (tmp_path, "is a directory, not a file"),
        (write_file(tmp_path / "schedd.toml", "[server\n"), "line 1"),
    ):
        try:
            assert load_(path) == 2
        except SettingsError as error:
            words = str(error)
        else:
            words = capsys.readouterr().err
        assert str(path) in words
        assert said in words


def test_environment_overrides_the_file_and_arguments_override_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_file(tmp_path / "schedd.toml", AUTH + "[server]\nport = 1\nmax_body_mib = 3")
    assert read_settings_file(path).server.port == 1
    monkeypatch.setenv("SCHEDD_SERVER__PORT", "2")
    assert read_settings_file(path).server.port == 2
    chosen = read_settings_file(path, server={"port": 3}).server
    assert (chosen.port, chosen.max_body_mib) == (3, 3)


def test_tls_or_an_override_allows_remote_access(tmp_path: Path) -> None:
    path = tmp_path / "schedd.toml"
    for text in ('tls_certificate = "c"', "allow_remote = true"):
        assert not read_settings_file(write_file(path, f'[server]\nhost = "0.0.0.0"\n{text}')).server.local


def test_engine_gets_the_cluster_settings(tmp_path: Path) -> None:
    path = write_file(tmp_path / "schedd.toml", AUTH + "[clusters.main]\nslack = 7\nvalidate = true")
    engine = read_settings_file(path).clusters["main"].engine
    assert (engine.slack, engine.validate_) == ("7", True)


def test_times_have_a_single_notation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
[store]
lease = "3s"
keep_events = "12h"
[clusters.main]
end_allowance = "1h+30m"
search_seconds = "0.5s"
node_grace = 90
slack = "30m+0.5w"
[clusters.main.site.priority]
waiting_most = "5d"
"""
    path = write_file(tmp_path / "schedd.toml", AUTH + text)
    monkeypatch.setenv("SCHEDD_CLUSTERS__MAIN__SERVER_GRACE", "2m")
    settings = read_settings_file(path)
    cluster = settings.clusters["main"]
    assert (settings.store.lease, settings.store.keep_events) == (3.0, 0.5)
    assert (cluster.end_allowance, cluster.search_seconds, cluster.node_grace) == (5400, 0.5, 90)
    assert (cluster.engine.slack, cluster.server_grace) == ("30m+0.5w", 120)
    assert cluster.site.priority.waiting_most == 120
    shown = "\n".join(effective_settings(settings, path))
    assert 'end_allowance = "90m"\n' in shown
    assert 'keep_events = "12h"\n' in shown
    path.write_text(AUTH + "[clusters.main]\nnode_grace = 'soon'\n")
    with pytest.raises(SettingsError, match="node_grace: a time such as 30s, 5m, 4h, 7d"):
        read_settings_file(path)


def test_rate_0_publishes_no_starts(tmp_path: Path) -> None:
    path = write_file(tmp_path / "schedd.toml", AUTH + "[clusters.main]\npublish_rate = 0\n")
    assert read_settings_file(path).clusters["main"].engine.silent


def test_cluster_can_disable_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(tmp_path / "schedd.toml", AUTH + "[clusters.main]\nslack = 'off'")
    settings = read_settings_file(path)
    engine = settings.clusters["main"].engine
    assert Slack.parse(engine.slack) == OFF
    assert Slack.parse(engine.slack).latest(10, 10) == FOREVER
    assert 'slack = "off"' in list(effective_settings(settings, path))
    monkeypatch.setenv("SCHEDD_CLUSTERS__MAIN__SLACK", "600")
    assert read_settings_file(path).clusters["main"].engine.slack == "10m"


def test_token_file_defines_roles_and_names(tmp_path: Path) -> None:
    path = write_file(tmp_path / "tokens", f"# who\n\nadapter pbs1 {TOKEN}\nadmin ann {TOKEN[::-1]}\n")
    tokens = Tokens.from_settings(AuthSettings(token_file=path))
    found = tokens.bearer(TOKEN)
    assert found is not None
    assert (found.role, found.name) == ("adapter", "pbs1")
    assert tokens.bearer(TOKEN + "x") is None
    assert tokens.bearer("") is None
    assert tokens.anonymous is None


def test_tokens_can_be_configured_as_hashes(tmp_path: Path) -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest().upper()
    text = f'[[auth.tokens]]\nname = "portal"\nrole = "reader"\nsha256 = "{digest}"\n'
    found = Tokens.from_settings(read_settings_file(write_file(tmp_path / "c.toml", text)).auth).bearer(TOKEN)
    assert found is not None
    assert (found.role, found.name) == ("reader", "portal")


@pytest.mark.parametrize(
    ("line", "mode", "said"),
    [
        (f"adapter pbs1 {TOKEN}", 0o640, "chmod 0600"),
        (
            f"boss ann {TOKEN}",
            0o600,
            "no role 'boss'; there is user, reader, operator, adapter, admin, proxy",
        ),
        (
            "admin ann",
            0o600,
            "line 1: expected role, name and token (and clusters, as in a,b), found 2 words",
        ),
        ("admin ann short", 0o600, "openssl rand -hex 32"),
        (f"admin a/b {TOKEN}", 0o600, "a name has letters"),
    ],
)
def test_invalid_token_file_is_refused_without_showing_a_token(
    tmp_path: Path, line: str, mode: int, said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        read_token_file(write_file(tmp_path / "tokens", line, mode))
    assert said in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_token_file_can_restrict_tokens_to_clusters(tmp_path: Path) -> None:
    path = write_file(tmp_path / "tokens", "operator theo 0123456789abcdef theory,test\n", 0o600)
    found = Tokens.from_settings(AuthSettings(token_file=path)).bearer("0123456789abcdef")
    assert found is not None
    assert [found.on_cluster(name) is not None for name in ("theory", "test", "main")] == [True, True, False]
    with pytest.raises(SettingsError, match="single commas"):
        read_token_file(write_file(tmp_path / "bad", "operator theo 0123456789abcdef theory,,test\n", 0o600))


@pytest.mark.parametrize(
    "text",
    [
        f'[[auth.tokens]]\nname = "t"\nrole = "user"\nsha256 = "{"0" * 64}"\nclusters = ["nain"]\n',
        '[[auth.grants]]\nusers = ["ann"]\nrole = "operator"\nclusters = ["nain"]\n',
    ],
)
def test_scope_with_an_unknown_cluster_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"auth\.(tokens|grants).*: no cluster 'nain'; there is main"):
        read_settings_file(write_file(tmp_path / "s.toml", text))


def test_missing_token_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nothing-here"):
        read_token_file(tmp_path / "nothing-here")


def test_engine_gets_only_explicit_site_settings(tmp_path: Path) -> None:
    text = """
        [clusters.main.site.priority]
        class = 2
        waiting = 10
        queues = { urgent = 500 }
        [clusters.main.site.classes.gold]
        points = 8
        groups = ["physics"]
        [clusters.main.site.fair_share]
        levels = ["account", "user"]
        shares = { "chem" = 3, "chem/ann" = 2 }
        [[clusters.main.site.limits]]
        what = "cpus"
        who = "user"
        amount = 64
        """
    engine = read_settings_file(write_file(tmp_path / "schedd.toml", AUTH + text)).clusters["main"].engine
    site = engine.site
    assert (site.weights.class_, site.weights.waiting, site.weights.queue) == (2.0, 10.0, 1.0)
    assert site.weights.queues == {"urgent": 500.0}
    assert site.weights.classes == {"gold": JobClass(points=8.0, groups=("physics",))}
    tree = FairShareSettings(levels=("account", "user"), shares={"chem": 3.0, "chem/ann": 2.0})
    assert site.part(FairShareSettings).tree == tree
    assert site.limits == (Limit(amount=64, what="cpus", who="user"),)
    assert json.loads(json.dumps(site.plain)) == site.plain
    assert (
        read_settings_file(write_file(tmp_path / "schedd.toml", AUTH)).clusters["main"].engine.site.plain
        == {}
    )


def test_start_wait_that_allows_double_starts_is_refused(tmp_path: Path) -> None:
    text = AUTH + "[clusters.main]\nstart_wait = 89\n"
    with pytest.raises(SettingsError, match=r"start_wait = 89: .* = 90, or a job could start twice"):
        read_settings_file(write_file(tmp_path / "schedd.toml", text))
    read_settings_file(write_file(tmp_path / "schedd.toml", text.replace("89", "90")))
