"""Maui's parameters whose values are not translated: most of appendix F of its guide."""

from collections.abc import Mapping

from schedd.cli.importing.maui_flags import NO_PREEMPTION
from schedd.cli.importing.result import LOAD_NOTE, Verdict

OFF = frozenset({"", "0", "0.0", "OFF", "FALSE", "NO", "NONE", "[NONE]", "N", "F"})
"""Values that switch a parameter off."""

_PLANNED = "every job has a planned start, not only the first ones"
_GAPS = "all jobs are planned in the order of their priority, and gaps are always filled"
_SERVER = "the adapter connects to pbs_server: see docs/administrators/torque.md"
_STORE = "see [store]"
_LOG = "see [log]; logs go to the journal"
_LIMIT_ON_SERVER = "the server enforces it: set resources_max of the server and its queues"
_MOM = "the mom ends jobs that use more than they requested ($enforce, cgroups)"
_ACCOUNTS = (
    "schedd does not connect to a bank: budgets are in the table accounts (docs/administrators/accounts.md)"
)
_TRIAL = "for simulations and tests of Maui: use `schedd replay`"
_QUEUED = "the server enforces it: set max_user_queuable and max_queuable; qsub then refuses jobs"
_OLD_LIMIT = (
    "limits in this old form are not translated: write them as USERCFG[DEFAULT] MAXJOB=N and import again"
)
_OLD_RESERVATION = (
    "reservations in this old form are not translated: write them as SRCFG[NAME] and import again"
)
_QOS = "a QOS in this old form is not translated: write it as QOSCFG[NAME] and import again"
_NO, _OTHER, _STOP = Verdict.NOT_NEEDED, Verdict.DIFFERS, Verdict.BLOCKER


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
        _NO,
        "requests of several nodes and of several parts are supported",
        "ENABLEMULTINODEJOBS ENABLEMULTIREQJOBS",
    ),
    **_table(
        _NO, "after each refused start a job waits longer: see refusal_wait and refusal_most", "DEFERTIME"
    ),
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
    "SERVERMODE": (
        _NO,
        "see mode of the adapter: NORMAL corresponds to scheduler, TEST and SIMULATION to shadow",
    ),
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
    **_table(_NO, "it concerns only Maui's commands", "TOOLSDIR DISPLAYFLAGS UMASK"),
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
        "schedd runs no program: alerts are in the metrics, webhooks and the log, and users get mail "
        "by [notify]",
        "NOTIFICATIONPROGRAM NOTIFICATIONINTERVAL MAILPROGRAM FEEDBACKPROGRAM",
    ),
    **_table(
        _NO,
        "it concerns Maui's own resource daemon, which PBS does not need",
        "RESOURCEDAEMON RESOURCEDATAFILE RESOURCELOCKFILE RESOURCEPORT RESOURCEREPORTWAIT "
        "RESOURCESAMPLEINTERVAL",
    ),
    **_table(_OTHER, LOAD_NOTE, "NODEMAXLOAD NODELOADPOLICY NODEAVAILABILITYPOLICY NODEUNTRACKEDLOADFACTOR"),
    **_table(_OTHER, _MOM, "ENFORCERESOURCELIMITS RESOURCELIMITPOLICY RESLIMITPOLICY WCVIOLATIONACTION"),
    **_table(
        _OTHER,
        "it has no effect, since no NODECFG has a SPEED: see speeds and normalised_walltimes "
        "(docs/administrators/policy.md)",
        "USEMACHINESPEED",
    ),
    "USEMACHINESPEEDFORFS": (_NO, "speeds in [clusters.NAME.site] always count in fair share"),
    "USECPUTIME": (_OTHER, "use is counted in cpu-seconds held, not in cpu time used"),
    **_table(_OTHER, _LIMIT_ON_SERVER, "SYSTEMMAXPROCPERJOB SYSTEMMAXPROCSECONDPERJOB SYSTEMMAXJOBWALLTIME"),
    "JOBPRIOACCRUALPOLICY": (
        _OTHER,
        "waiting time counts from the moment at which the job became eligible (etime of the server)",
    ),
    "USESYSTEMQUEUETIME": (
        _OTHER,
        "waiting time counts from the moment at which the job became eligible (etime of the server)",
    ),
    "MAXJOB": (_NO, "schedd plans any number of jobs"),
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
        "not translated: define partitions by their nodes or properties in partitions.sets, and their "
        "limits in limits with partition (docs/administrators/partitions.md)",
        "FEATUREPARTITIONHEADER USELOCALMACHINEPRIORITY",
    ),
    **_table(
        _OTHER,
        "not translated: among the nodes that allow the earliest start, node_choice decides "
        "(docs/administrators/partitions.md)",
        "NODEALLOCATIONPOLICY NODEALLOCMAXPS ALLOCLOCALITYPOLICY TASKDISTRIBUTIONPOLICY",
    ),
    **_table(_NO, "properties of nodes come from the server", "FEATURENODETYPEHEADER"),
    "FEATUREPROCSPEEDHEADER": (_OTHER, "see speeds in [clusters.NAME.site]"),
    **_table(
        _STOP,
        "schedd never overcommits nodes: raise np of the nodes on the server",
        "NODECPUOVERCOMMITFACTOR NODEMEMOVERCOMMITFACTOR",
    ),
    "PARIGNQUEUELIST": (_STOP, "schedd would start jobs of these queues: stop the queues on the server"),
    "FSSECONDARYGROUPS": (_STOP, "only a job's own group counts in fair share and limits"),
    "FSENFORCEMENT": (
        _STOP,
        'fair share only orders jobs: write hard bounds on use in [[limits]], with counts = "used"',
    ),
    "FSCONFIGFILE": (
        _STOP,
        "it names another file, which is not read: insert its contents here and import again",
    ),
    "REJECTNEGPRIOJOBS": (
        _OTHER,
        "a job with a negative priority waits and starts like others, unless formula.threshold holds it",
    ),
    "ENABLENEGJOBPRIORITY": (_NO, "priorities may be negative"),
    **_table(_OTHER, "the server sets default queues and other defaults", "DEFAULTACCOUNT DEFAULTCLASSLIST"),
    "IGNPBSGROUPLIST": (_OTHER, "a job's group comes from the server"),
    "JOBSIZEPOLICY": (_NO, "only the requested cpus count"),
    "JOBPRIOF": (
        _STOP,
        "not translated: write it as a formula, which may have comparisons (docs/administrators/formula.md)",
    ),
    "RESCTLPOLICY": (
        _OTHER,
        "operators and admins make reservations; users make bookings, as [bookings] allows",
    ),
    "MINADMINSTIME": (
        _NO,
        "see wait and min_run of the table preemption",
    ),
    "ENABLEPOSUSERPRIORITY": (_NO, "see USERPRIOWEIGHT"),
    **_table(
        _NO,
        "the planner preempts for each preemptor that can then start earlier: see the table preemption",
        "GUARANTEEDPREEMPTION PREEMPTSEARCHDEPTH",
    ),
    "JOBPREEMPTMINACTIVETIME": (
        _STOP,
        "set min_run of the table preemption, which this file does not define",
    ),
    "JOBPREEMPTMAXACTIVETIME": (_STOP, "schedd may preempt a job until it ends"),
    "USEJOBREGEX": (_NO, "it concerns only Maui's commands"),
}
"""Verdict and message by name, for parameters that are on. A parameter that is off has no effect."""

MOAB_PARAMETERS: Mapping[str, tuple[Verdict, str]] = {
    **_table(
        _NO,
        _SERVER,
        "ENABLEHIGHTHROUGHPUT JOBCPURGETIME MAXGMETRIC CLIENTMAXCONNECTIONS CLIENTMAXPRIMARYRETRY "
        "CLIENTMAXPRIMARYRETRYTIMEOUT AUTHTIMEOUT RESOURCEQUERYDEPTH MSUBQUERYINTERVAL SPOOLDIR "
        "ENABLEFAILUREFORPURGEDJOB",
    ),
    **_table(_NO, _STORE, "USEDATABASE STOREJOBSUBMISSION CHECKPOINTWITHDATABASE"),
    **_table(_NO, _LOG, "RECORDEVENTLIST LOGPERMISSIONS LOGROLLACTION EVENTFILEROLLDEPTH"),
    "SERVERLICENSEPATH": (_NO, "schedd has no licence file"),
    "DISABLEBATCHHOLDS": (_NO, "schedd sets no batch holds: see refusal_wait and returns_most"),
    "JOBREJECTPOLICY": (
        _OTHER,
        "schedd cancels and holds no job: one that can never run waits, and its comment names the reason",
    ),
    "JOBFAILRETRYCOUNT": (_OTHER, "the server decides whether a failed job runs again; see returns_most"),
    "RSVPROFILE": (
        _OTHER,
        "it has an effect only when an administrator names it: give the options to `schedd reservation`",
    ),
    "DISABLESLAVEJOBSUBMIT": (_OTHER, "the server decides which hosts may submit jobs (submit_hosts)"),
}
"""The same of parameters that Maui does not have."""

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
