"""JupyterHub with batchspawner: while a notebook waits in the queue, its page shows the likely start.

In jupyterhub_config.py:

    from batchspawner import TorqueSpawner  # for OpenPBS: PBSSpawner
    from batchspawner_start import planned_start

    c.JupyterHub.spawner_class = planned_start(TorqueSpawner, "http://127.0.0.1:8080", "TOKEN", "main")
    c.JupyterHub.spawner_class.start_timeout = 86_400  # seconds; a job that waits longer is given up
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from schedd.client import Client, ClientError, Endpoint


def planned_start(base: type, url: str, token: str, cluster: str, pause_s: float = 10.0) -> type:
    """Return a spawner class that reports the start of the job in its progress messages.

    The token has the role `reader`. ``base`` keeps the id of its job in ``job_id``.
    """

    def read_start(job_id: str) -> str:
        with Client(Endpoint(url, token, cluster)) as client:
            job = client.job(job_id)
            return job.headline or job.why

    class PlannedStartSpawner(base):  # type: ignore[misc]
        """A batch spawner that tells when its job starts."""

        async def progress(self) -> AsyncIterator[dict[str, Any]]:
            """Yield the start of the job until it runs."""
            last = ""
            while not self.state_isrunning():
                try:
                    text = await asyncio.to_thread(read_start, self.job_id) if self.job_id else "Submitting"
                except ClientError as error:
                    text = f"The start is not known: {error}"
                if text != last:
                    yield {"message": text, "progress": 10}
                last = text
                await asyncio.sleep(pause_s)
            yield {"message": "The notebook's job runs", "progress": 90}

    return PlannedStartSpawner
