"""Import of Maui's and Moab's fair share."""

import pytest

from schedd.cli.importing.result import Verdict
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    lines_with_findings,
    setting_lines,
    settings_in,
)

EXAMPLE = (EXAMPLES / "maui.cfg").read_text()


def test_maui_fair_share_keeps_windows_and_targets() -> None:
    assert import_maui(EXAMPLE).site["fair_share"] == {
        "interval": 86_400,
        "depth": 14,
        "decay": 0.85,
        "levels": ["group"],
        "unlisted": 5.0,
        "shares": {"physics": 40.0},
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FSWEIGHT 9\nFSUSERWEIGHT 5\nUSERCFG[DEFAULT] FSTARGET=10", "there is no FSPOLICY"),
        ("FSPOLICY NONE\nFSWEIGHT 9\nFSUSERWEIGHT 5\nUSERCFG[DEFAULT] FSTARGET=10", "NONE"),
        ("FSPOLICY DEDICATEDPS\nFSWEIGHT 9\nUSERCFG[DEFAULT] FSTARGET=10", "no weight"),
        ("FSPOLICY DEDICATEDPS\nFSWEIGHT 9\nFSUSERWEIGHT 5\nGROUPCFG[x] FSTARGET=10", "has an FSTARGET"),
    ],
)
def test_disabled_fair_share_stays_off_and_every_line_is_reported(text: str, why: str) -> None:
    done = import_maui(text)
    assert "fair_share" not in done.site
    assert "fair_share" not in done.site["priority"]
    assert lines_with_findings(done) == setting_lines(text)
    assert {one.verdict for one in done.findings if one.line} == {Verdict.NOT_NEEDED}
    assert any(why in finding.message for finding in done.with_verdict(Verdict.NOT_NEEDED))


def test_default_user_target_is_translated() -> None:
    text = "FSPOLICY DEDICATEDPS\nFSWEIGHT 1\nFSUSERWEIGHT 10\nUSERCFG[DEFAULT] FSTARGET=12.5\n"
    done = import_maui(text)
    assert done.site["fair_share"]["unlisted"] == 12.5
    assert finding_text(done, "USERCFG[DEFAULT] FSTARGET").startswith("translated: fair_share.unlisted")


def test_windows_of_fair_share_have_the_defaults_of_the_program() -> None:
    done = import_maui("FSPOLICY DEDICATEDPS\nFSUSERWEIGHT 10\nFSDEPTH x\nUSERCFG[DEFAULT] FSTARGET=12.5\n")
    tree = done.site["fair_share"]
    assert (tree["interval"], tree["depth"], tree["decay"]) == (43_200, 8, 1.0)
    assert (
        finding_text(done, "FSINTERVAL")
        == "translated: not in the file; Maui's default: fair_share.interval = 43200"
    )
    assert finding_text(done, "FSDEPTH").endswith("is used: fair_share.depth = 8")


TREE = """FSPOLICY DEDICATEDPS
FSUSERWEIGHT 5
FSTREE[all] SHARES=100 MEMBERLIST=science,arts
FSTREE[science] SHARES=60 MEMBERLIST=physics,user:eve@2
FSTREE[arts] SHARES=40 MEMBERLIST=user:bob,user:arts
FSTREE[physics] MEMBERLIST=user:ann@3
"""


def test_the_share_tree_of_moab_is_kept() -> None:
    done = import_maui(TREE, moab=True)
    assert done.site["fair_share"] == {
        "interval": 43_200,
        "depth": 8,
        "decay": 1.0,
        "unlisted": 0.0,
        "levels": ["user"],
        "shares": {
            "all": 100.0,
            "science": 60.0,
            "arts.tree": 40.0,
            "physics": 1.0,
            "eve": 2.0,
            "bob": 1.0,
            "arts": 1.0,
            "ann": 3.0,
        },
        "parents": {
            "science": "all",
            "arts.tree": "all",
            "physics": "science",
            "eve": "science",
            "bob": "arts.tree",
            "arts": "arts.tree",
            "ann": "physics",
        },
    }
    assert done.site["priority"]["fair_share"] == 500.0
    assert lines_with_findings(done) == setting_lines(TREE)
    assert not list(done.with_verdict(Verdict.BLOCKER))
    settings_in(done.toml("main"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("FSTREE[physics] MEMBERLIST=user:ann", "user:ann is already a member of physics (line 6)"),
        ("FSTREE[x] MEMBERLIST=science", "science is already a member of all"),
        ("FSTREE[x] MEMBERLIST=nowhere", "nowhere is unknown: there is no FSTREE[nowhere]"),
        ("FSTREE[x] SHARES=-1 MEMBERLIST=user:u", "'-1' is not a number from 0 to 10^9"),
        ("FSTREE[x] MEMBERLIST=user:u@many", "user:u@many: 'many' is not a number from 0 to 10^9"),
        (
            "FSTREE[x] MEMBERLIST=qos:high",
            "qos:high: a member has a type (user, group, acct or class) and a name",
        ),
        ("FSTREE[x] LIMITS=MAXJOB:1", "only SHARES and MEMBERLIST of a share tree are supported"),
        ("FSTREE[x] MEMBERLIST=x", "a cycle: x below x"),
    ],
)
def test_a_bad_share_tree_of_moab_is_refused_with_line_and_reason(line: str, reason: str) -> None:
    done = import_maui(f"{TREE}{line}\n", moab=True)
    found = [one.message for one in done.with_verdict(Verdict.BLOCKER) if one.line == 7]
    assert found == [f"left out: {reason}"]
    settings_in(done.toml("main"))


def test_owners_of_other_levels_in_the_share_tree_are_blockers() -> None:
    done = import_maui(f"{TREE}FSTREE[x] MEMBERLIST=acct:chem\nGROUPCFG[g] FSTARGET=5\n", moab=True)
    found = {one.line: one.message for one in done.with_verdict(Verdict.BLOCKER)}
    assert found == {
        7: "account chem in x: all owners of a tree have the same level, here user",
        8: "the share tree sets the targets: an FSTARGET outside of it is not supported",
    }
    off = import_maui(TREE.replace("FSPOLICY DEDICATEDPS", "FSPOLICY NONE"), moab=True)
    assert "fair_share" not in off.site
    assert lines_with_findings(off) == setting_lines(TREE)
    none = import_maui("FSPOLICY DEDICATEDPS\nFSTREE[x] MEMBERLIST=nobody\n", moab=True)
    assert "fair_share" not in none.site
    assert finding_text(none, "FSPOLICY").startswith("blocker: no share tree with users")


def test_additional_fair_share_levels_are_blockers() -> None:
    text = "FSPOLICY UTILIZEDPS\nFSUSERWEIGHT 10\nFSGROUPWEIGHT 1\n"
    text += "USERCFG[a] FSTARGET=5\nGROUPCFG[g] FSTARGET=5-\n"
    done = import_maui(text)
    assert done.site["fair_share"]["levels"] == ["user"]
    assert (
        finding_text(done, "GROUPCFG[g] FSTARGET")
        == "blocker: only fair share of the level user is supported"
    )
    assert "not in UTILIZEDPS" in finding_text(done, "FSPOLICY")
    assert finding_text(done, "FSTARGET of the others").startswith("different: ")


def test_an_owner_with_a_line_of_its_own_keeps_its_shares() -> None:
    text = (
        "FSPOLICY DEDICATEDPS\nFSTREE[all] SHARES=9 MEMBERLIST=acct:chem,acct:bio@5\n"
        "FSTREE[acct:chem] SHARES=2\nFSTREE[acct:none] SHARES=2\nFSTREE[acct:bio] MEMBERLIST=user:ann\n"
    )
    done = import_maui(text, moab=True)
    tree = done.site["fair_share"]
    assert tree["levels"] == ["account"]
    assert tree["shares"] == {"all": 9.0, "chem": 2.0, "bio": 5.0}
    assert tree["parents"] == {"chem": "all", "bio": "all"}
    assert finding_text(done, "FSTREE[acct:none]") == (
        "blocker: left out: no node of the tree has acct:none in its MEMBERLIST"
    )
    assert finding_text(done, "FSTREE[acct:bio] MEMBERLIST").startswith("blocker: left out: only SHARES")
    settings_in(done.toml("main"))
