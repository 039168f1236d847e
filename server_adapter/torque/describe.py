"""Reads described objects: one function for each of job, node, queue and server."""

from server_adapter.torque import values as read
from server_adapter.torque.attributes import Fields, JobStatus, NodeStatus, QueueStatus, ServerStatus, Values


def parse_job(name: str, values: Values) -> JobStatus:
    """A job from its attributes by `name` or `name.resource`."""
    fields = Fields(values)
    owner = fields.text("Job_Owner")
    letters = fields.text("Hold_Types")
    fields.group("Walltime")  # remaining time: start_time and walltime say it better
    return JobStatus(
        id=name,
        state=fields.text("job_state"),
        substate=fields.number("substate"),
        name=fields.text("Job_Name"),
        owner=owner,
        user=fields.text("euser") or owner.partition("@")[0],
        group=fields.text("egroup"),
        account=fields.text("Account_Name"),
        queue=fields.text("queue"),
        priority=fields.number("Priority") or 0,
        holds="".join(letter for letter in letters if letter in "uosla"),
        resources=fields.group("Resource_List"),
        used=fields.group("resources_used"),
        created=fields.number("ctime"),
        queued=fields.number("qtime"),
        eligible=fields.number("etime"),
        modified=fields.number("mtime"),
        not_before=fields.number("Execution_Time"),
        start_time=fields.number("start_time"),
        start_count=fields.number("start_count") or 0,
        completed=fields.number("comp_time"),
        exit_status=fields.number("exit_status"),
        hosts=fields.take("exec_host", read.exec_host, ()),
        depend=fields.text("depend"),
        comment=fields.text("comment"),
        array_index=fields.number("job_array_id"),
        slot_limit=fields.number("array_slot_limit"),
        rank=fields.number("queue_rank"),
        rerunnable=fields.take("Rerunable", read.flag, default=True),
        planned_start=fields.number("planned_start"),
        planned_nodes=fields.text("planned_nodes"),
        extra=fields.text("x"),
        other=fields.other,
        unreadable=fields.unreadable,
    )


def parse_node(name: str, values: Values) -> NodeStatus:
    """A node from its attributes, its mom's report included."""
    fields = Fields(values)
    report = Fields(read.node_status(fields.text("status")))
    none: int | None = None
    no_load: float | None = None
    return NodeStatus(
        name=name,
        states=read.words(fields.text("state")),
        slots=fields.number("np") or 0,
        properties=read.words(fields.text("properties")),
        jobs=fields.take("jobs", read.node_jobs, {}),
        note=fields.text("note"),
        gpus=fields.number("gpus") or 0,
        memory=report.take("physmem", read.kib, none),
        total_memory=report.take("totmem", read.kib, none),
        available_memory=report.take("availmem", read.kib, none),
        cores=report.number("ncpus"),
        load=report.take("loadave", float, no_load),
        reported=report.number("rectime"),
        mom_jobs=tuple(report.text("jobs").split()),
        power=fields.text("power_state"),
        other=fields.other,
        unreadable=fields.unreadable + tuple(f"status.{key}" for key in report.unreadable),
    )


def parse_queue(name: str, values: Values) -> QueueStatus:
    """A queue from its attributes."""
    fields = Fields(values)
    return QueueStatus(
        name=name,
        execution=fields.text("queue_type").lower().startswith("e"),
        enabled=fields.take("enabled", read.flag, default=False),
        started=fields.take("started", read.flag, default=False),
        priority=fields.number("Priority") or 0,
        total_jobs=fields.number("total_jobs") or 0,
        counts=fields.take("state_count", read.state_count, {}),
        defaults=fields.group("resources_default"),
        minimum=fields.group("resources_min"),
        maximum=fields.group("resources_max"),
        max_running=fields.number("max_running"),
        max_user_running=fields.number("max_user_run"),
        other=fields.other,
        unreadable=fields.unreadable,
    )


def parse_server(name: str, values: Values) -> ServerStatus:
    """The server from its attributes."""
    fields = Fields(values)
    return ServerStatus(
        name=name,
        state=fields.text("server_state"),
        version=fields.text("pbs_version"),
        scheduling=fields.take("scheduling", read.flag, default=False),
        scheduler_iteration=fields.number("scheduler_iteration"),
        keep_completed=fields.number("keep_completed"),
        default_queue=fields.text("default_queue"),
        total_jobs=fields.number("total_jobs") or 0,
        counts=fields.take("state_count", read.state_count, {}),
        defaults=fields.group("resources_default"),
        max_running=fields.number("max_running"),
        query_other_jobs=fields.take("query_other_jobs", read.flag, default=False),
        other=fields.other,
        unreadable=fields.unreadable,
    )
