"""Energy saved by switching idle nodes off: by the plan's needs, and after an idle time as other schedulers
do.

The same jobs of a log on nodes of equal watts, under the daemon's own power saving with several allowed
delays, and under EASY backfilling with the rule of other schedulers.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from research.experiments.node_power import PowerModel, run_with_power
from schedd.engine import SITE_SLACK, EngineSettings
from schedd.policy.economy import Draw
from schedd.policy.site import site_policy
from schedd.replay.prepared import Prepared
from schedd.replay.simulation import PLANNING_POLICY

WATTS: Final = 150.0  # of an idle node; with all its cores busy it draws twice as much
OFF: Final = 10.0
BOOT: Final = 300
STOP: Final = 60


@dataclass(frozen=True, slots=True)
class SwitchingRule:
    """How nodes are switched: not at all, or off after ``idle`` seconds idle; by the plan, where jobs may
    wait for ``delay`` seconds for nodes that are on.
    """

    name: str
    policy: str
    idle: int | None = None
    delay: int = 0

    @property
    def planned(self) -> bool:
        """Whether there is a plan that says which nodes are needed."""
        return self.policy == PLANNING_POLICY


RULES: Final = (
    SwitchingRule("planned, always on", PLANNING_POLICY),
    SwitchingRule("planned, idle 15 min", PLANNING_POLICY, 900),
    SwitchingRule("planned, idle 15 min, delay 5 min", PLANNING_POLICY, 900, 300),
    SwitchingRule("planned, idle 15 min, delay 30 min", PLANNING_POLICY, 900, 1800),
    SwitchingRule("planned, idle 5 min", PLANNING_POLICY, 300),
    SwitchingRule("planned, idle 1 min", PLANNING_POLICY, 60),
    SwitchingRule("EASY, always on", "easy"),
    SwitchingRule("EASY, idle 15 min", "easy", 900),
    SwitchingRule("EASY, idle 5 min", "easy", 300),
    SwitchingRule("EASY, idle 1 min", "easy", 60),
)


@dataclass(frozen=True, slots=True)
class Saved:
    """One log under one rule: energy in kWh, of it ``idle_kwh`` on nodes where nothing ran, orders to switch
    a node off, waits in seconds.
    """

    log: str
    jobs: int
    nodes: int
    rule: str
    days: float
    kwh: float
    idle_kwh: float
    offs: int
    wait_s: float
    wait_p99_s: float
    wait_max_s: float
    breaches: int

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def saved(prepared: Prepared, rules: tuple[SwitchingRule, ...] = RULES) -> Iterator[Saved]:
    """One log under each rule, on the nodes of ``prepared``. Raises Defect."""
    cores = max(node.cpus for node in prepared.site.nodes)
    draw = Draw(idle=WATTS, core=WATTS / cores, off=OFF)
    watts = {"*": {"idle": draw.idle, "core": draw.core, "off": draw.off}}
    submit = np.array([job.submit for job in prepared.jobs], np.int64)
    for rule in rules:
        site: dict[str, Any] = {"power": watts}
        if rule.planned and rule.idle is not None:
            site["power_saving"] = {
                "mode": "on",
                "idle": rule.idle,
                "delay": rule.delay,
                "boot_time": BOOT,
                "stop_time": STOP,
                "at_once": len(prepared.site.nodes),
            }
        found, energy = run_with_power(
            prepared,
            rule.policy,
            EngineSettings(site=site_policy(site), slack=str(SITE_SLACK)),
            PowerModel(draw=draw, boot=BOOT, stop=STOP, timeout=None if rule.planned else rule.idle),
        )
        waits = found.start - submit
        yield Saved(
            prepared.name,
            len(prepared.jobs),
            len(prepared.site.nodes),
            rule.name,
            float(found.end.max() - submit.min()) / 86_400,
            energy.kwh,
            energy.idle_kwh,
            energy.switched_off,
            float(waits.mean()),
            float(np.percentile(waits, 99)),
            float(waits.max()),
            found.promise_breaches,
        )
