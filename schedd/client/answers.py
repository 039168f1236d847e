"""Types of the API's answers: the API's own classes, for type checkers only.

At run time an answer is a ``JsonObject``, and these names are that class: the client and the users' commands
load no module of the daemon. An answer has at least the fields of its class; a later daemon may send more
(docs/reference/api.md). Tuples and sequences of the classes are lists.
"""

from typing import TYPE_CHECKING

from schedd.client.json_object import JsonObject

if TYPE_CHECKING:
    from schedd.api.alerts import (
        AlertsView,
    )
    from schedd.api.arrays import (
        ArrayView,
    )
    from schedd.api.cluster_reports import (
        ClusterReports,
    )
    from schedd.api.holds import (
        HoldsView,
        HoldView,
    )
    from schedd.api.objectives import (
        JobCostView,
        ObjectivesView,
        ObjectiveValue,
    )
    from schedd.api.policy import (
        PolicyPreview,
        PolicyView,
        PreviewView,
    )
    from schedd.api.priorities import PriorityView
    from schedd.api.result_views import (
        AccuracyView,
        CriterionChange,
        DeadlineAccuracy,
        EvaluationSample,
        EvaluationView,
        HorizonAccuracy,
        ReservationResult,
        ReservationsView,
        SearchesView,
        SearchResult,
        SearchView,
        UsersView,
        WhatIfResult,
        WhatIfVariantResult,
    )
    from schedd.api.views import (
        ClustersView,
        ClusterView,
        DispatchState,
        EndedJobView,
        GapsView,
        JobColumns,
        JobPage,
        NodePage,
        PlanPage,
        PlanUpdate,
        ReservationView,
        StartHistory,
    )
    from schedd.engine.show.job_view import (
        Change,
        JobView,
    )
    from schedd.features.accounts.api import (
        AccountReport,
        AccountsView,
        AccountView,
        ChargeSummary,
        LedgerEntry,
        LedgerView,
    )
    from schedd.features.alternatives.api import (
        AlternativesView,
        AppliedPlan,
        SearchStopped,
    )
    from schedd.features.alternatives.plan_alternatives import (
        AlternativeSet,
        OfferedMove,
    )
    from schedd.features.bookings.api import (
        BookingMoveView,
        BookingOptionView,
        BookingResult,
        BookingsView,
        BookingView,
    )
    from schedd.features.fair_share.api import (
        FairShareEntry,
        FairShareHistory,
        FairShareView,
        ShareCourseView,
    )
    from schedd.features.licences.api import (
        LicenceLeaseView,
        LicencesView,
        LicenceUse,
    )
    from schedd.features.notices.api import (
        NoticesView,
        NoticeView,
    )
    from schedd.features.partitions.api import PartitionsView, PartitionView
    from schedd.features.portal.api import (
        MeView,
        PortalJobs,
        TighterWalltimesView,
        TighterWalltimeView,
    )
    from schedd.features.portal.job_list import PortalJobView
    from schedd.features.power.api import (
        PowerView,
    )
    from schedd.features.prediction.api import (
        RunTimeView,
        TighterWalltimeAnswer,
    )
    from schedd.features.transfers.api import (
        TransferResult,
        TransfersView,
        TransferView,
    )
    from schedd.federation.api.answers import (
        BalanceView,
        ClusterWhatIf,
        CoAllocationSearches,
        FederatedClusterView,
        FederatedJobView,
        FederationReport,
        TransferAttemptView,
    )
    from schedd.federation.api.item_answers import (
        BagOfferView,
        BagView,
        CoAllocationView,
        CounterOfferView,
        FederatedBookingMove,
        FederatedBookingView,
    )
    from schedd.federation.report import (
        BagFigures,
        BookingFigures,
        JobFigures,
        StretchFigures,
    )
    from schedd.plan.views.start_windows import (
        StartWindow,
    )
    from schedd.predict.accuracy import (
        AccuracyFigures,
    )
    from schedd.service.questions.cheapest_start import (
        CheapestStart,
    )
    from schedd.service.questions.explain import (
        BlockedResource,
        Blocker,
        Explanation,
    )
    from schedd.service.questions.explanation_chain import (
        ChainLink,
        JobsAhead,
    )
    from schedd.service.questions.smaller_requests import (
        SmallerRequest,
    )
    from schedd.service.questions.summaries import (
        UserSummary,
    )
    from schedd.service.questions.tighter_walltimes import TighterWalltime
    from schedd.service.read.current_faults import AlertView
    from schedd.service.read.gaps import (
        CapacityStep,
        Gap,
    )
    from schedd.service.read.plan_lists import (
        Bar,
        NodeView,
    )
    from schedd.store.records import AuditRecord
    from schedd.wire.facts import (
        ShareFacts,
    )

__all__ = [
    "AccountReport",
    "AccountView",
    "AccountsView",
    "AccuracyFigures",
    "AccuracyView",
    "AlertView",
    "AlertsView",
    "AlternativeSet",
    "AlternativesView",
    "AppliedPlan",
    "ArrayView",
    "AuditRecord",
    "BagFigures",
    "BagOfferView",
    "BagView",
    "BalanceView",
    "Bar",
    "BlockedResource",
    "Blocker",
    "BookingFigures",
    "BookingMoveView",
    "BookingOptionView",
    "BookingResult",
    "BookingView",
    "BookingsView",
    "CapacityStep",
    "ChainLink",
    "Change",
    "ChargeSummary",
    "CheapestStart",
    "ClusterReports",
    "ClusterView",
    "ClusterWhatIf",
    "ClustersView",
    "CoAllocationSearches",
    "CoAllocationView",
    "CounterOfferView",
    "CriterionChange",
    "DeadlineAccuracy",
    "DispatchState",
    "EndedJobView",
    "EvaluationSample",
    "EvaluationView",
    "Explanation",
    "FairShareEntry",
    "FairShareHistory",
    "FairShareView",
    "FederatedBookingMove",
    "FederatedBookingView",
    "FederatedClusterView",
    "FederatedJobView",
    "FederationReport",
    "Gap",
    "GapsView",
    "HoldView",
    "HoldsView",
    "HorizonAccuracy",
    "JobColumns",
    "JobCostView",
    "JobFigures",
    "JobPage",
    "JobView",
    "JobsAhead",
    "LedgerEntry",
    "LedgerView",
    "LicenceLeaseView",
    "LicenceUse",
    "LicencesView",
    "MeView",
    "NodePage",
    "NodeView",
    "NoticeView",
    "NoticesView",
    "ObjectiveValue",
    "ObjectivesView",
    "OfferedMove",
    "PartitionView",
    "PartitionsView",
    "PlanPage",
    "PlanUpdate",
    "PolicyPreview",
    "PolicyView",
    "PortalJobView",
    "PortalJobs",
    "PowerView",
    "PreviewView",
    "PriorityView",
    "ReservationResult",
    "ReservationView",
    "ReservationsView",
    "RunTimeView",
    "SearchResult",
    "SearchStopped",
    "SearchView",
    "SearchesView",
    "ShareCourseView",
    "ShareFacts",
    "SmallerRequest",
    "StartHistory",
    "StartWindow",
    "StretchFigures",
    "TighterWalltime",
    "TighterWalltimeAnswer",
    "TighterWalltimeView",
    "TighterWalltimesView",
    "TransferAttemptView",
    "TransferResult",
    "TransferView",
    "TransfersView",
    "UserSummary",
    "UsersView",
    "WhatIfResult",
    "WhatIfVariantResult",
]


def __getattr__(name: str) -> type[JsonObject]:
    """Return the class that stands for all types of answers at run time. Raises AttributeError."""
    if name in __all__:
        return JsonObject
    raise AttributeError(f"there is no answer {name}")
