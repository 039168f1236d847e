"""An emulated server to speak to without sockets."""

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import ManageRequest, RunRequest
from server_adapter.dis import Attribute, Decoder
from server_adapter.emulator import EmulatedServer, Job, NodeSpec, Timing
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.principal import make_principal
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.replies import decode_reply

NODES = [NodeSpec("node1", 4, ("odd",)), NodeSpec("node2", 4, ("even",)), NodeSpec("node3", 4, ("odd",))]


class Lab:
    """An emulated server with a stopped clock, and one client."""

    def __init__(self, version: str = "6.1", timing: Timing | None = None) -> None:
        self.server = EmulatedServer(
            NODES, version=version, time_scale=0, epoch=1_795_255_000.0, timing=timing or Timing()
        )
        self.cluster = self.server.cluster

    def request(self, request: BatchRequest, user: str = "root") -> Reply:
        who = make_principal(self.cluster, user, privileged=user == "root")
        return decode_reply(Decoder(self.server.handlers.answer(request, ClientContext(who))))

    def run(self, job: str, destination: str = "", code: RequestCode = RequestCode.RUN_JOB) -> int:
        return self.request(RunRequest(code=code, job=job, destination=destination)).code

    def manage(
        self,
        code: RequestCode,
        name: str,
        *changes: Attribute,
        kind: ObjectType = ObjectType.JOB,
        command: ManagerCommand = ManagerCommand.SET,
        user: str = "root",
    ) -> int:
        request = ManageRequest(code=code, command=command, object_type=kind, name=name, attributes=changes)
        return self.request(request, user).code

    def hold(self, job: str, letters: str, user: str = "root") -> int:
        return self.manage(RequestCode.HOLD_JOB, job, Attribute("Hold_Types", letters), user=user)

    def release(self, job: str, letters: str, user: str = "root") -> int:
        return self.manage(RequestCode.RELEASE_JOB, job, Attribute("Hold_Types", letters), user=user)

    def delete(self, job: str, user: str = "root") -> int:
        return self.manage(RequestCode.DELETE_JOB, job, command=ManagerCommand.DELETE, user=user)

    def job(self, name: str) -> Job:
        return self.server.job(name)

    def command(self) -> SchedulerCommand | None:
        return self.cluster.pop_command()
