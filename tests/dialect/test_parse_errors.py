import pickle
import subprocess
import sys

import pytest

from schedd.dialect import RequestError, parse_torque, resource_list


def test_error_has_fields_and_a_single_line_comment() -> None:
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


def test_long_request_is_cut_around_the_error_position() -> None:
    with pytest.raises(RequestError) as caught:
        parse_torque({"nodes": "+".join(["1:ppn=4"] * 100) + "+1:ppn=x" + "+1:ppn=4" * 100})
    shown, below = str(caught.value).split("\n")
    assert len(shown) <= 74
    assert shown[below.index("^") :].startswith("x+1:ppn=4")
    assert "\n" not in caught.value.comment
    assert len(caught.value.comment) < 200


def test_unprintable_characters_are_replaced_in_messages() -> None:
    with pytest.raises(RequestError) as caught:
        parse_torque({"nodes": "1:\x1b[31m\nred"})
    assert str(caught.value).startswith("nodes=1:?[31m?red\n        ^ '?[31m?red' is no property")


def test_error_without_text_shows_only_its_message() -> None:
    assert (
        str(RequestError("nothing is asked for", allowed="nodes=N"))
        == "nothing is asked for; allowed: nodes=N"
    )
    assert RequestError("nothing is asked for").comment == "nothing is asked for"


def test_error_survives_pickling() -> None:
    error = RequestError("what", "text", 2, "allowed")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("text", ["", "nodes", "=2", "mem=1gb,,procs=2", "mem=1gb,mem=2gb", "a='b"])
def test_malformed_resource_list_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        resource_list(text)


def test_resource_list_keeps_commas_in_quotes() -> None:
    assert resource_list("nodes=1:ppn=2, software='a,b'") == {"nodes": "1:ppn=2", "software": "a,b"}


def test_dialect_imports_only_the_standard_library() -> None:
    heavy = "{'numpy', 'numba', 'pydantic', 'fastapi'} & set(sys.modules)"
    code = f"import sys, schedd.dialect; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
