from hypothesis import given
from hypothesis import strategies as st

from schedd.wire.adapter_troubles import (
    ADAPTER_TROUBLES,
    MAX_TROUBLES_CHARS,
    decode_troubles,
    encode_troubles,
)

TEXTS = st.dictionaries(st.sampled_from(sorted(ADAPTER_TROUBLES)), st.text(max_size=500))


@given(TEXTS)
def test_a_header_of_troubles_never_exceeds_what_the_daemon_accepts(troubles: dict[str, str]) -> None:
    header = encode_troubles(troubles)
    assert len(header) <= MAX_TROUBLES_CHARS
    assert header.isascii()
    assert set(decode_troubles(header)) == {kind for kind, text in troubles.items() if text}


def test_texts_full_of_quotes_are_shortened() -> None:
    header = encode_troubles(dict.fromkeys(ADAPTER_TROUBLES, '"' * 400))
    assert 0 < len(header) <= MAX_TROUBLES_CHARS
    assert set(decode_troubles(header)) == set(ADAPTER_TROUBLES)
