"""``schedd serve`` with a certificate: used, renewed by a reload, and unusable in several ways."""

import contextlib
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest

from schedd.api.listening_sockets import tls_context
from schedd.service.settings.daemon import ServerSettings
from schedd.wire.toml_files import SettingsError
from tests.cli.test_serve import _wait_until, run, start_daemon
from tests.cli.test_serve_safely import (
    log_entries,
    read_until_closed,
    reload_settings,
    request_over_socket,
    write_settings,
)
from tests.store.forked_processes import run_program
from tests.waits import WAIT_S


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder = tmp_path / "tls"
    folder.mkdir()
    certify(folder, "one")
    return folder


def certify(folder: Path, name: str) -> None:
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O={name}"
    words += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    openssl(*words.split(), folder=folder)


def openssl(*words: str | Path, folder: Path | None = None) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder)


def served_certificate(port: int, trusted: ssl.SSLContext) -> str:
    """Return the certificate of the server at the port, as PEM."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain:
        plain.settimeout(WAIT_S)
        with contextlib.closing(trusted.wrap_socket(plain, server_hostname="127.0.0.1")) as channel:
            return ssl.DER_cert_to_PEM_cert(channel.getpeercert(binary_form=True) or b"")


def test_https_uses_a_renewed_certificate_after_a_reload(tmp_path: Path, certificate: Path) -> None:
    keys = f'tls_certificate = "{certificate}/cert.pem"\ntls_key = "{certificate}/key.pem"\nhost = "0.0.0.0"'
    served = start_daemon(tmp_path, write_settings(tmp_path, server=keys))
    try:
        found = re.fullmatch(r"https://0\.0\.0\.0:(\d+)", served.url)
        assert found is not None
        port = int(found[1])
        trusted = ssl.create_default_context(cafile=certificate / "cert.pem")
        with httpx2.Client(verify=trusted, trust_env=False) as client:
            _wait_until(
                served.process, lambda: client.get(f"https://127.0.0.1:{port}/readyz").status_code == 200
            )
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as channel:
            channel.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in read_until_closed(channel)
        assert served_certificate(port, trusted) == (certificate / "cert.pem").read_text()
        old = (certificate / "cert.pem").read_text()
        certify(certificate, "two")
        new = ssl.create_default_context(cafile=certificate / "cert.pem")
        with pytest.raises(ssl.SSLError):
            served_certificate(port, new)
        reload_settings(served, "settings were read again")
        assert served_certificate(port, new) == (certificate / "cert.pem").read_text() != old
        (certificate / "key.pem").write_text("none")
        assert "key.pem cannot be used" in reload_settings(served, "the settings stay unchanged")["why"]
        assert served_certificate(port, new) == (certificate / "cert.pem").read_text()
    finally:
        served.client.close()
        served.process.kill()
        served.process.wait()


def test_missing_certificate_stops_the_daemon_with_a_message(tmp_path: Path) -> None:
    keys = f'tls_certificate = "{tmp_path}/none.pem"'
    done = run("--config", str(write_settings(tmp_path, server=keys)))
    assert (done.returncode, "none.pem cannot be used: No such file" in done.stderr) == (2, True)
    assert not (tmp_path / "socket").exists()
    assert not (tmp_path / "s.sqlite").exists()


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("cert", "none", r"server.tls_key: \S+/none.pem cannot be used: No such file"),
        ("cert", "kin", r"server.tls_key: \S+/kin.pem cannot be used: it is not the key of \S+/cert.pem"),
        ("cert", "other", r"server.tls_key: \S+/other.pem cannot be used: it is not the key of \S+/cert.pem"),
        (
            "cert",
            "locked",
            r"locked.pem cannot be used: it has a passphrase; .*openssl pkey -in \S+/locked.pem",
        ),
        ("cert", "", r"server.tls_key: \S+/cert.pem cannot be used: there is no private key in it"),
        ("key", "key", r"server.tls_certificate: \S+/key.pem cannot be used: there is no certificate in it"),
        ("torn", "key", r"server.tls_certificate: \S+/torn.pem cannot be used: \w+"),
        (".", "key", r"cannot be used: Is a directory"),
    ],
)
def test_certificate_errors_are_reported(certificate: Path, cert: str, key: str, said: str) -> None:
    def file(name: str) -> Path:
        return certificate if name == "." else certificate / f"{name}.pem"

    openssl("genpkey", "-algorithm", "ED25519", "-out", file("other"))
    openssl(*["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"], file("kin"))
    openssl("pkey", "-in", file("key"), "-aes128", "-passout", "pass:secret", "-out", file("locked"))
    file("torn").write_text(file("cert").read_text()[:200])
    settings = ServerSettings(tls_certificate=file(cert), tls_key=file(key) if key else None)
    with pytest.raises(SettingsError, match=said):
        tls_context(settings)


def test_an_expired_certificate_is_used_with_a_warning(tmp_path: Path, certificate: Path) -> None:
    keys = f'tls_certificate = "{certificate}/cert.pem"\ntls_key = "{certificate}/key.pem"'
    path = write_settings(tmp_path, server=keys)

    def check() -> str:
        done = run_program("schedd.cli.main", "config", "check", "--config", str(path), timeout=WAIT_S)
        assert done.returncode == 0
        return done.stdout

    assert "no client will trust" not in check()
    set_validity(certificate, "20200101000000Z", "20200201000000Z")
    assert f"no client will trust {certificate}/cert.pem: certificate has expired" in check()
    served = start_daemon(tmp_path, path)
    try:
        told = log_entries(served, "no client will trust the certificate")
        assert [one["why"] for one in told] == ["certificate has expired"]
        set_validity(certificate, "20900101000000Z", "20910101000000Z")
        _wait_until(served.process, lambda: request_over_socket(tmp_path, "GET", "/readyz")[0] == 200)
        assert (
            reload_settings(served, "no client will trust the certificate")["why"]
            == "certificate is not yet valid"
        )
    finally:
        served.client.close()
        served.process.kill()
        served.process.wait()


def set_validity(folder: Path, begin: str, end: str) -> None:
    """Issue a certificate for the same key and another period."""
    (folder / "ca").write_text(
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\n"
        "policy=any\n[any]\norganizationName=optional\n"
    )
    (folder / "index").write_text("")
    (folder / "serial").unlink(missing_ok=True)
    openssl("req", "-new", "-key", "key.pem", "-subj", "/O=aged", "-out", "request", folder=folder)
    words = "ca -batch -config ca -selfsign -keyfile key.pem -in request -out cert.pem -notext -create_serial"
    openssl(*words.split(), "-startdate", begin, "-enddate", end, folder=folder)


def test_tls_1_2_offers_only_forward_secret_authenticated_ciphers(certificate: Path) -> None:
    keys = {"tls_certificate": certificate / "cert.pem", "tls_key": certificate / "key.pem"}
    context = tls_context(ServerSettings(**keys))  # type: ignore[arg-type]
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    of_1_2 = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.2"}
    assert of_1_2
    assert {name for name in of_1_2 if not re.fullmatch(r"ECDHE-.*(GCM|POLY1305).*", name)} == set()
