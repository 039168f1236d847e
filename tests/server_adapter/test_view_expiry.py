"""Views of a slow server are shared, too."""

from server_adapter.servers.view_expiry import VIEW_AGE_S, view_expiry


def test_a_view_that_took_long_to_read_is_still_of_use() -> None:
    assert view_expiry(100.0, 100.01) == 100.01 + VIEW_AGE_S
    assert view_expiry(100.0, 103.0) == 106.0
