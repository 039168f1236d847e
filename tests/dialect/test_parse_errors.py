import pickle
import subprocess
import sys

import pytest

from schedd.dialect import RequestError, parse_torque, resource_list


def test_an_error_has_fields_and_a_line_for_the_jobs_comment() -> None:
    with pytest.raises(RequestError) as caught:
        parse_torque({"nodes": "2:ppn=zero"})
    error = caught.value
    assert (error.what, error.text, error.position) == (
        "ppn= needs a whole number, not 'zero'",
        "nodes=2:ppn=zero",
        12,
    )
    assert error.allowed == "1 or more"
    assert error.comment == (
        "nodes=2:ppn=zero: ppn= needs a whole number, not 'zero' (at character 13); allowed: 1 or more"
    )


def test_a_long_request_is_shown_around_the_place_of_the_error() -> None:
    with pytest.raises(RequestError) as caught:
        parse_torque({"nodes": "+".join(["1:ppn=4"] * 100) + "+1:ppn=x" + "+1:ppn=4" * 100})
    shown, below = str(caught.value).split("\n")
    assert len(shown) <= 74
    assert shown[below.index("^") :].startswith("x+1:ppn=4")
    assert "\n" not in caught.value.comment
    assert len(caught.value.comment) < 200


def test_characters_that_cannot_be_printed_do_not_reach_a_message() -> None:
    with pytest.raises(RequestError) as caught:
        parse_torque({"nodes": "1:\x1b[31m\nred"})
    assert str(caught.value).startswith("nodes=1:?[31m?red\n        ^ '?[31m?red' is no property")


def test_an_error_without_a_text_is_its_message_alone() -> None:
    assert (
        str(RequestError("nothing is asked for", allowed="nodes=N"))
        == "nothing is asked for; allowed: nodes=N"
    )
    assert RequestError("nothing is asked for").comment == "nothing is asked for"


def test_an_error_survives_the_way_between_processes() -> None:
    error = RequestError("what", "text", 2, "allowed")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("text", ["", "nodes", "=2", "mem=1gb,,procs=2", "mem=1gb,mem=2gb", "a='b"])
def test_what_is_no_resource_list_is_an_error(text: str) -> None:
    with pytest.raises(RequestError):
        resource_list(text)


def test_a_resource_list_keeps_commas_in_quotes() -> None:
    assert resource_list("nodes=1:ppn=2, software='a,b'") == {"nodes": "1:ppn=2", "software": "a,b"}


def test_the_readers_need_nothing_but_the_standard_library() -> None:
    heavy = "{'numpy', 'numba', 'pydantic', 'fastapi'} & set(sys.modules)"
    code = f"import sys, schedd.dialect; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
