"""A federation while it leads."""

import gc
import threading
import time
from pathlib import Path

import pytest
from fastapi import FastAPI

from schedd.federation.api.daemon import _lead_federation, load_tokens
from schedd.federation.settings import FederationSettings
from schedd.service.garbage_collector import GarbageCollectorTuning
from schedd.supervision import Supervisor
from schedd.wire.toml_files import SettingsError
from tests.waits import WAIT_S


def test_leader_freezes_old_objects_for_garbage_collection(tmp_path: Path) -> None:
    cluster = {"url": "http://127.0.0.1:9", "token_file": str(tmp_path), "realms": ["org"], "timeout": 0.2}
    store = {"url": f"sqlite:///{tmp_path}/fed.sqlite"}
    settings = FederationSettings.model_validate({"store": store, "clusters": {"north": cluster}})
    app, stopping = FastAPI(), threading.Event()
    app.state.federation = None
    leading = threading.Thread(
        target=_lead_federation, args=(settings, {"north": "x"}, app, stopping, Supervisor(), time.time)
    )
    leading.start()
    try:
        end = time.monotonic() + WAIT_S
        while app.state.federation is None:
            assert leading.is_alive()
            assert time.monotonic() < end
            time.sleep(0.01)
        assert _set_aside() == 1
    finally:
        stopping.set()
        leading.join(WAIT_S)
    assert not leading.is_alive()
    assert _set_aside() == 0


def test_token_of_a_role_without_meaning_in_a_federation_is_refused(tmp_path: Path) -> None:
    path, cluster = tmp_path / "tokens", {"url": "http://127.0.0.1:9", "token_file": "x", "realms": ["org"]}
    tables = {
        "server": {"token_file": str(path)},
        "store": {"url": "sqlite:///x"},
        "clusters": {"a": cluster},
    }
    settings = FederationSettings.model_validate(tables)
    path.touch(0o600)
    path.write_text(f"user ann@org {'u' * 40}\nadmin root {'a' * 40}\n")
    assert len(load_tokens(settings)) == 2
    path.write_text(f"user ann@org {'u' * 40}\noperator olga {'o' * 40}\n")
    with pytest.raises(SettingsError, match=r"tokens, line 2: no role 'operator'; there is user, rea"):
        load_tokens(settings)


def _set_aside() -> int:
    return sum(isinstance(getattr(one, "__self__", None), GarbageCollectorTuning) for one in gc.callbacks)
