"""Accounts page: balances, and charges by month, account and user."""

import csv
import io
from dataclasses import astuple, fields
from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Visibility
from schedd.features.accounts.api import ChargeSummary, visible_accounts, visible_charges
from schedd.features.accounts.settings import AccountSettings
from schedd.features.accounts.state import PublishedAccounts
from schedd.service.clusters import Clusters

router = RouteTable()
PAGE: Final = MenuPage(
    "accounts", "Accounts", lambda _, published: bool(published.part(PublishedAccounts).accounts)
)
_YEAR_S: Final = 366 * 86_400
_MAX_ACCOUNTS_SHOWN: Final = 500


@router.get("/{cluster}/accounts")
async def show_accounts(
    request: Request, cluster: Cluster, viewer: Reader, visibility: Visibility
) -> Response:
    """Accounts that the viewer may see, and charges of a year."""
    since = max(0, cluster.now() - _YEAR_S)
    charged = await run_in_threadpool(visible_charges, _clusters(request), cluster, visibility, since)
    site = cluster.published.settings.site
    return render_page(
        request,
        "accounts",
        viewer,
        cluster,
        accounts=visible_accounts(cluster.published, viewer.bearer.name, visibility),
        charged=charged[:_MAX_ACCOUNTS_SHOWN],
        more=max(0, len(charged) - _MAX_ACCOUNTS_SHOWN),
        all_seen=visibility.viewer is None,
        last=site.part(AccountSettings).empty == "last",
    )


@router.get("/{cluster}/accounts.csv")
async def download_charges(request: Request, cluster: Cluster, _: Reader, visibility: Visibility) -> Response:
    """All charges of a year, by month, account and user."""
    since = max(0, cluster.now() - _YEAR_S)
    charged = await run_in_threadpool(visible_charges, _clusters(request), cluster, visibility, since)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([field.name for field in fields(ChargeSummary)])
    writer.writerows(astuple(one) for one in charged)
    headers = {"Content-Disposition": f'attachment; filename="{cluster.name}-charges.csv"'}
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _clusters(request: Request) -> Clusters:
    found: Clusters = request.app.state.clusters
    return found
