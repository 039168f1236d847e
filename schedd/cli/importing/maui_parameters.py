"""Maui's parameters without a value to translate: most of appendix F of its guide."""

from collections.abc import Mapping

from schedd.cli.importing.maui_flags import NO_PREEMPTION
from schedd.cli.importing.result import LOAD_NOTE, Verdict

OFF = frozenset({"", "0", "0.0", "OFF", "FALSE", "NO", "NONE", "[NONE]", "N", "F"})
"""Values that switch a parameter off."""

_PLANNED = "every job has a planned start, not only the first ones"
_GAPS = "every job is planned, gaps are always filled, in the order of priority"
_SERVER = "the adapter speaks with pbs_server; see docs/administrators/operate.md"
_STORE = "see [store]"
_LOG = "see [log]; logs go to the journal"
_LIMIT_ON_SERVER = "the server's affair: set resources_max of server and queues there"
_MOM = "the mom ends jobs that use more than they asked for ($enforce, cgroups)"
_ACCOUNTS = "no bank is asked: budgets are in the table accounts (docs/administrators/accounts.md)"
_TRIAL = "for simulations and tests of Maui; `schedd replay` does that"
_QUEUED = "the server's affair: max_user_queuable and max_queuable; qsub then refuses jobs"
_OLD_LIMIT = (
    "limits in this old form are not taken over: write them as USERCFG[DEFAULT] MAXJOB=N and import again"
)
_OLD_RESERVATION = "reservations in this old form are not taken over: write them as SRCFG[NAME]"
_QOS = "a QOS in this old form is not taken over: write it as QOSCFG[NAME] and import again"
_NO, _OTHER, _STOP = Verdict.NO_MATTER, Verdict.DIFFERS, Verdict.BLOCKER


def _table(verdict: Verdict, message: str, names: str) -> dict[str, tuple[Verdict, str]]:
    return dict.fromkeys(names.split(), (verdict, message))


PARAMETERS: Mapping[str, tuple[Verdict, str]] = {
    **_table(
        _NO,
        _GAPS,
        "BACKFILLPOLICY BACKFILLDEPTH BACKFILLMETRIC BACKFILLTYPE BACKFILLMAXSCHEDULES BACKFILLPROCFACTOR "
        "BFPRIORITYPOLICY BFCHUNKDURATION BFCHUNKSIZE",
    ),
    **_table(
        _NO,
        _PLANNED,
        "RESERVATIONPOLICY RESERVATIONDEPTH RESERVATIONRETRYTIME RESERVATIONTHRESHOLDTYPE "
        "RESERVATIONTHRESHOLDVALUE RESDEPTH MAXJOBPERITERATION RESERVATIONQOSLIST",
    ),
    **_table(
        _NO, "requests of several nodes and parts are planned", "ENABLEMULTINODEJOBS ENABLEMULTIREQJOBS"
    ),
    **_table(_NO, "a refused start waits longer each time: refusal_wait, refusal_most", "DEFERTIME"),
    **_table(_NO, "see returns_most", "DEFERCOUNT DEFERSTARTCOUNT"),
    **_table(
        _NO,
        _SERVER,
        "RMCFG RMSERVER RMTYPE RMHOST RMPORT RMNAME RMNMPORT RMEPORT RMTIMEOUT RMAUTHTYPE RMCONFIGFILE "
        "RMLOCALDISKFS RMPOLLINTERVAL NODEPOLLFREQUENCY JOBAGGREGATIONTIME DEFAULTQMHOST DEFAULTDOMAIN "
        "MAXSLEEPITERATION JOBSYNCTIME NODESYNCTIME JOBPURGETIME NODEPURGETIME REMOTESTARTCOMMAND "
        "APIFAILURETHRESHHOLD CLIENTTIMEOUT MCSOCKETPROTOCOL CLIENTCFG DIRECTORYSERVER EVENTSERVER "
        "COMPUTEHOSTS METAMAXTASKS MINDISPATCHTIME MACHINECONFIGFILE NODEDOWNSTATEDELAYTIME JOBMAXSTARTTIME",
    ),
    **_table(_NO, "see [server]", "SERVERHOST SERVERPORT SERVERNAME SCHEDCFG"),
    "SERVERMODE": (_NO, "see mode of the adapter: NORMAL is scheduler, TEST and SIMULATION are shadow"),
    **_table(_NO, "name them in admins and operators of [auth]", "ADMIN1 ADMIN2 ADMIN3 ADMIN4 ADMINS"),
    **_table(_NO, "see [auth]", "ADMINHOST ADMINHOSTS ADMINCFG"),
    **_table(
        _OTHER,
        _ACCOUNTS,
        "AMCFG BANKAPPENDMACHINENAME BANKCHARGEPOLICY BANKDEFERONJOBFAILURE BANKFALLBACKACCOUNT "
        "BANKFLUSHINTERVAL BANKHOST BANKPORT BANKPROTOCOL BANKSERVER BANKTIMEOUT BANKTYPE",
    ),
    **_table(
        _NO,
        _LOG,
        "LOGFILE LOGDIR LOGLEVEL LOGFACILITY LOGFILEMAXSIZE LOGFILEROLLDEPTH USESYSLOG "
        "RESOURCECOLLECTIONPOLICY",
    ),
    **_table(
        _NO,
        _STORE,
        "STATDIR CHECKPOINTFILE CHECKPOINTINTERVAL CHECKPOINTEXPIRATIONTIME SERVERHOMEDIR SERVERCONFIGFILE "
        "LOCKFILE",
    ),
    **_table(_NO, "there are no such tools", "TOOLSDIR DISPLAYFLAGS UMASK"),
    **_table(
        _NO,
        _TRIAL,
        "SIMAUTOSHUTDOWN SIMCHECKPOINTINTERVAL SIMCOMRATE SIMCOMTYPE SIMDEFAULTJOBFLAGS SIMEXITITERATION "
        "SIMFLAGS "
        "SIMIGNOREJOBFLAGS SIMINITIALQUEUEDEPTH SIMJOBSUBMISSIONPOLICY SIMNODECONFIGURATION SIMNODECOUNT "
        "SIMRANDOMIZEJOBSIZE SIMRESOURCETRACEFILE SIMSCALEJOBRUNTIME SIMSTARTTIME SIMSTOPITERATION "
        "SIMTIMEPOLICY "
        "SIMWCACCURACYCHANGE SIMWCACCURACY SIMWCSCALINGPERCENT SIMWORKLOADTRACEFILE STEPCOUNT TRAPFUNCTION "
        "TRAPJOB TRAPNODE TRAPRES COMINTERFRAMECOST COMINTRAFRAMECOST",
    ),
    **_table(
        _NO,
        "see the metrics and the dashboard",
        "PLOTMAXPROC PLOTMAXTIME PLOTMINPROC PLOTMINTIME PLOTPROCSCALE PLOTTIMESCALE",
    ),
    **_table(
        _OTHER,
        "alerts are metrics, webhooks and lines of the log, users get mail by [notify]: no program is run",
        "NOTIFICATIONPROGRAM NOTIFICATIONINTERVAL MAILPROGRAM FEEDBACKPROGRAM",
    ),
    **_table(
        _NO,
        "for a resource daemon of Maui's own, which PBS does not have",
        "RESOURCEDAEMON RESOURCEDATAFILE RESOURCELOCKFILE RESOURCEPORT RESOURCEREPORTWAIT "
        "RESOURCESAMPLEINTERVAL",
    ),
    **_table(_OTHER, LOAD_NOTE, "NODEMAXLOAD NODELOADPOLICY NODEAVAILABILITYPOLICY NODEUNTRACKEDLOADFACTOR"),
    **_table(_OTHER, _MOM, "ENFORCERESOURCELIMITS RESOURCELIMITPOLICY RESLIMITPOLICY WCVIOLATIONACTION"),
    **_table(
        _OTHER,
        "no NODECFG has a SPEED: see speeds and normalised_walltimes (docs/administrators/policy.md)",
        "USEMACHINESPEED",
    ),
    "USEMACHINESPEEDFORFS": (_NO, "the same as speeds in [clusters.NAME.site]"),
    "USECPUTIME": (_OTHER, "cpu-seconds held count, not those used"),
    **_table(_OTHER, _LIMIT_ON_SERVER, "SYSTEMMAXPROCPERJOB SYSTEMMAXPROCSECONDPERJOB SYSTEMMAXJOBWALLTIME"),
    "JOBPRIOACCRUALPOLICY": (
        _OTHER,
        "waiting counts from when the server says that a job became eligible (etime)",
    ),
    "USESYSTEMQUEUETIME": (
        _OTHER,
        "waiting counts from when the server says that a job became eligible (etime)",
    ),
    "MAXJOB": (_NO, "there is no bound on the jobs that are planned"),
    **_table(
        _OTHER,
        _QUEUED,
        "MAXJOBQUEUEDPERUSERPOLICY MAXJOBQUEUEDPERUSERCOUNT MAXJOBQUEUEDPERGROUPPOLICY "
        "MAXJOBQUEUEDPERGROUPCOUNT MAXJOBQUEUEDPERACCOUNTPOLICY MAXJOBQUEUEDPERACCOUNTCOUNT "
        "SMAXJOBQUEUEDPERUSERCOUNT SMAXJOBQUEUEDPERGROUPCOUNT SMAXJOBQUEUEDPERACCOUNTCOUNT",
    ),
    **_table(
        _STOP,
        _OLD_LIMIT,
        "MAXJOBPERUSERPOLICY MAXJOBPERUSERCOUNT MAXJOBPERGROUPPOLICY MAXJOBPERGROUPCOUNT "
        "MAXJOBPERACCOUNTPOLICY "
        "MAXJOBPERACCOUNTCOUNT MAXNODEPERUSERPOLICY MAXNODEPERUSERCOUNT MAXPEPERUSERPOLICY MAXPEPERUSERCOUNT "
        "MAXPROCPERUSERPOLICY MAXPROCPERUSERCOUNT MAXPROCPERGROUPPOLICY MAXPROCPERGROUPCOUNT "
        "MAXPROCPERACCOUNTPOLICY MAXPROCPERACCOUNTCOUNT MAXPROCSECONDPERUSERPOLICY MAXPROCSECONDPERUSERCOUNT "
        "MAXPROCSECONDPERGROUPPOLICY MAXPROCSECONDPERGROUPCOUNT MAXPROCSECONDPERACCOUNTPOLICY "
        "MAXPROCSECONDPERACCOUNTCOUNT SMAXJOBPERUSERCOUNT SMAXJOBPERGROUPCOUNT SMAXJOBPERACCOUNTCOUNT "
        "SMAXNODEPERUSERCOUNT SMAXPEPERUSERCOUNT SMAXPROCPERUSERCOUNT SMAXPROCPERGROUPCOUNT "
        "SMAXPROCPERACCOUNTCOUNT SMAXPROCSECONDPERUSERCOUNT SMAXPROCSECONDPERGROUPCOUNT "
        "SMAXPROCSECONDPERACCOUNTCOUNT",
    ),
    **_table(
        _STOP,
        _OLD_RESERVATION,
        "SRACCESS SRACCOUNTLIST SRCHARGEACCOUNT SRCLASSLIST SRDAYS SRDEPTH SRENDTIME SRFEATURES SRFLAGS "
        "SRGROUPLIST SRHOSTLIST SRIDLETIME SRMAXTASKS SRMAXTIME SRMINLOAD SRMINTASKS SRNAME SRPARTITION "
        "SRPERIOD "
        "SRPRIORITY SRQOSLIST SRRESOURCES SRSTARTTIME SRTASKCOUNT SRTIMELOGIC SRTPN SRUSERLIST SRWENDTIME "
        "SRWSTARTTIME",
    ),
    **_table(
        _STOP,
        _QOS,
        "QOSFLAGS QOSNAME QOSPRIORITY QOSQTWEIGHT QOSTARGETQT QOSTARGETXF QOSXFWEIGHT",
    ),
    **_table(_STOP, NO_PREEMPTION, "PREEMPTPOLICY PREEMPTIONPOLICY PREEMPTPRIOJOBSELECTWEIGHT"),
    **_table(
        _STOP,
        "not translated: define the partition by its nodes or their properties in partitions.sets, and its "
        "limits in limits with partition (docs/administrators/partitions.md)",
        "FEATUREPARTITIONHEADER USELOCALMACHINEPRIORITY",
    ),
    **_table(
        _OTHER,
        "not translated: of the nodes that allow the earliest start those are taken that node_choice prefers "
        "(docs/administrators/partitions.md)",
        "NODEALLOCATIONPOLICY NODEALLOCMAXPS ALLOCLOCALITYPOLICY TASKDISTRIBUTIONPOLICY",
    ),
    **_table(_NO, "nodes have the properties that the server names", "FEATURENODETYPEHEADER"),
    "FEATUREPROCSPEEDHEADER": (_OTHER, "see speeds in [clusters.NAME.site]"),
    **_table(
        _STOP,
        "nodes are never given more than they have: raise np of the nodes on the server",
        "NODECPUOVERCOMMITFACTOR NODEMEMOVERCOMMITFACTOR",
    ),
    "PARIGNQUEUELIST": (_STOP, "jobs of these queues would be started: stop the queues on the server"),
    "FSSECONDARYGROUPS": (_STOP, "in fair share and limits only the group of a job counts"),
    "FSENFORCEMENT": (
        _STOP,
        'fair share only sorts: limits with counts = "used" are hard bounds of use',
    ),
    "FSCONFIGFILE": (_STOP, "that file is not read: insert its contents here and import again"),
    "REJECTNEGPRIOJOBS": (
        _OTHER,
        "a job of negative priority waits like others, and starts, unless formula.threshold holds it back",
    ),
    "ENABLENEGJOBPRIORITY": (_NO, "priorities may be negative"),
    **_table(
        _OTHER, "the server's affair: its default queue and defaults", "DEFAULTACCOUNT DEFAULTCLASSLIST"
    ),
    "IGNPBSGROUPLIST": (_OTHER, "the group that the server names counts"),
    "JOBSIZEPOLICY": (_NO, "only the cpus asked for count"),
    "JOBPRIOF": (
        _STOP,
        "not translated: write it as a formula, whose terms may be compared (docs/administrators/formula.md)",
    ),
    "RESCTLPOLICY": (
        _OTHER,
        "operators and admins make reservations, and users book times as [bookings] allows",
    ),
    "MINADMINSTIME": (
        _NO,
        "jobs wait by the plan before others are preempted: see wait and min_run of the table preemption",
    ),
    "ENABLEPOSUSERPRIORITY": (_NO, "see USERPRIOWEIGHT"),
    **_table(
        _NO,
        "a preemption is planned for each preemptor that it lets start earlier: see the table preemption",
        "GUARANTEEDPREEMPTION PREEMPTSEARCHDEPTH",
    ),
    "JOBPREEMPTMINACTIVETIME": (_STOP, "see min_run of the table preemption, which the file does not give"),
    "JOBPREEMPTMAXACTIVETIME": (_STOP, "a job may be preempted until it ends"),
    "USEJOBREGEX": (_NO, "only for Maui's commands"),
}
"""By name: verdict and reason if it is on. A parameter that is off has no effect."""

MOAB_ALONE = frozenset(
    [
        "POWERPOLICY",
        "NODEIDLEPOWERTHRESHOLD",
        "GREENPOOLEVALUATIONINTERVAL",
        "ACCOUNTINGINTERFACEURL",
        "USEDATABASE",
        "IDCFG",
        "JOBCFG",
        "JOBMATCHCFG",
        "GRESCFG",
        "VMCFG",
        "VCPROFILE",
        "RSVPROFILE",
        "NODEIDFORMAT",
        "MSUBQUERYINTERVAL",
        "JOBREJECTPOLICY",
        "DISABLEBATCHHOLDS",
        "CREDDISCOVERY",
        "SUBMITFILTER",
        "EVALMETRICS",
        "OPTIMIZEDJOBARRAYS",
        "DATASTAGEHOLDTYPE",
        "ENABLEVIRTUALNODES",
        "HPCENVIRONMENT",
        "MIDCFG",
        "MWIKIRMCFG",
        "NAMETRANSLATIONCFG",
        "PUSHEVENTSTOWEBSERVICE",
        "RECORDEVENTLIST",
        "REMAPCLASS",
        "REMAPCLASSLIST",
        "RESOURCEQUERYDEPTH",
        "SERVERLICENSEPATH",
        "SPOOLDIR",
        "STOREJOBSUBMISSION",
        "TRIGGERPASSWORD",
        "UIMANAGEMENTPOLICY",
        "WEBSERVICESURL",
        "ENABLEHIGHTHROUGHPUT",
        "NODECATCREDLIST",
        "MAXSUSPENDEDJOBCOUNT",
        "MONGOSERVER",
        "JOBFAILRETRYCOUNT",
        "SCHEDPOLICY",
        "AUTHTIMEOUT",
        "ARRAYJOBPARLOCK",
    ]
)
"""Parameters that identify a file as Moab's: Maui has none of them."""
