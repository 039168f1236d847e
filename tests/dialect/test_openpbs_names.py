"""Every name of an OpenPBS request is obeyed, refused, or restricts neither where nor when a job runs."""

from itertools import combinations
from pathlib import Path

import pytest

from schedd.dialect import RequestError, canonical, parse_openpbs
from schedd.dialect.openpbs_names import ADDED_BY_THE_SERVER, HARMLESS, OBEYED, REFUSED

PAGE = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()


def names(text: str) -> list[str]:
    return text.split()


SERVER = names(
    """
    cput mem walltime soft_walltime min_walltime max_walltime ncpus naccelerators select place nodes
    nodect arch nchunk vntype mpiprocs ompthreads cpupercent energy file pmem vmem pvmem nice pcput
    nodemask hpm ssinodes host vnode resc software site exec_vnode start_time pe_mask partition aoe
    eoe preempt_targets accelerator accelerator_model accelerator_memory accelerator_group pstate
    hbmem pgov pcap_node pcap_accelerator ngpus schedselect
    """
)
"""Resources of the server's own table, and those that its documents add."""

CHANGES = {
    "select": "2:ncpus=2",
    "place": "excl",
    "nodes": "3",
    "ncpus": "2",
    "mem": "1gb",
    "vmem": "1gb",
    "ngpus": "1",
    "walltime": "60",
    "soft_walltime": "60",
    "max_walltime": "60",
    "arch": "linux",
    "vntype": "big",
    "host": "n1",
    "vnode": "n1",
    "aoe": "suse",
    "eoe": "fast",
    "accelerator": "True",
    "accelerator_model": "a100",
    "accelerator_group": "g1",
    "naccelerators": "2",
    "accelerator_memory": "1gb",
    "hbmem": "1gb",
}
"""A value of each name that changes the request of one core."""


def request_of(resources: dict[str, str]) -> str:
    generic = ["naccelerators", "accelerator_memory", "hbmem"]
    return canonical(parse_openpbs(resources, known_nodes=["n1"], generic=generic))


@pytest.mark.parametrize("name", SERVER)
def test_each_known_name_is_in_exactly_one_table(name: str) -> None:
    tables = [OBEYED, ADDED_BY_THE_SERVER, REFUSED.keys(), HARMLESS.keys()]
    assert sum(name in table for table in tables) == 1
    assert not any(one & other for one, other in combinations(map(set, tables), 2))


@pytest.mark.parametrize("name", sorted(OBEYED - {"min_walltime"}))
def test_a_name_that_is_obeyed_changes_the_request(name: str) -> None:
    assert request_of({name: CHANGES[name]}) != request_of({})


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_name_that_restricts_and_cannot_be_followed_is_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(RequestError, match="is not planned, and without it the job would") as refusal:
        request_of({name: "4"})
    assert refusal.value.allowed


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_a_name_that_restricts_nothing_has_a_reason_and_changes_nothing(name: str) -> None:
    assert HARMLESS[name]
    assert request_of({name: "4"}) == request_of({})


@pytest.mark.parametrize("name", sorted(ADDED_BY_THE_SERVER - {"schedselect"}))
def test_a_name_that_no_user_can_set_is_passed_over(name: str) -> None:
    request = parse_openpbs({name: "4"})
    assert (canonical(request), request.notes) == (request_of({}), ())


@pytest.mark.parametrize("name", sorted(REFUSED.keys() | HARMLESS.keys() | OBEYED))
def test_the_page_of_requests_names_each(name: str) -> None:
    assert f"`{name}`" in PAGE or f"`{name}=" in PAGE
