"""The demo's page *Mailbox*: mail that notices have sent."""

from typing import Final

from fastapi import Request
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.cli.demo.state import demo_state
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader

router = RouteTable(prefix="/{cluster}/mailbox")
PAGE: Final = MenuPage("mailbox", "Mailbox", lambda viewer, _: viewer.session is not None)


@router.get("")
def show_mailbox(request: Request, cluster: Cluster, viewer: Reader) -> Response:
    """The received messages, newest first: a user's own, for admins all."""
    mails = demo_state(request).mailbox.mails
    if not viewer.bearer.may("see all"):
        mails = [mail for mail in mails if mail.to.partition("@")[0] == viewer.bearer.name]
    return render_page(request, "mailbox", viewer, cluster, mails=mails)
