"""Contrast of the colours in both schemes, as the head of schedd.css demands: 4.5 for text, 3 for marks."""

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parents[2] / "schedd/dashboard/static"
TEXT_ON = {
    "card": (
        "ink",
        "soft",
        "link",
        "good",
        "bad",
        "running-text",
        "starting-text",
        "planned-text",
        "never-text",
    ),
    "page": ("ink", "soft", "link"),
    "sunk": ("ink", "soft", "running-text", "starting-text", "planned-text", "never-text"),
    "warn-back": ("ink",),
    "bad-back": ("ink", "bad"),
    "accent": ("accent-ink",),
}
MARKS = ("running", "starting", "planned", "reserved", "away", "load3", "load4", "good", "bad", "focus")


def read_colours(scheme: str) -> dict[str, str]:
    """Return the colours by name; the dark scheme replaces those of the light one."""
    text = (STATIC / "schedd.css").read_text().split("\n}")[0]
    if scheme == "dark":
        text += (STATIC / "dark.css").read_text()
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text))


def luminance(colour: str) -> float:
    """Return the relative luminance of sRGB, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_marks_stand_out(scheme: str) -> None:
    colours = read_colours(scheme)
    low = [
        (text, back, round(found, 2))
        for back, texts in TEXT_ON.items()
        for text in texts
        if (found := contrast(colours[text], colours[back])) < 4.5
    ]
    low += [
        (mark, "card", round(found, 2))
        for mark in MARKS
        if (found := contrast(colours[mark], colours["card"])) < 3
    ]
    assert low == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_on_bars_stand_out(scheme: str) -> None:
    """The chart writes white on bars darker than a limit, dark ink on the others."""
    script = (STATIC / "plan-bars.js").read_text()
    limit = re.search(r"0\.0722 \* b < ([\d.]+);", script)
    assert limit is not None
    colours = read_colours(scheme)
    for state in ("running", "planned", "starting", "ended"):
        ink = "#ffffff" if luminance(colours[state]) < float(limit[1]) else "#17202c"
        assert contrast(ink, colours[state]) >= 4.5, state


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_frame_of_the_strip_stands_out_from_full_and_empty_rows(scheme: str) -> None:
    """Its margin separates it from the rows: it stands out from its margin, or both from the rows."""
    colours = read_colours(scheme)
    assert contrast(colours["ink"], colours["card"]) >= 3
    assert contrast(colours["load4"], colours["card"]) >= 3
