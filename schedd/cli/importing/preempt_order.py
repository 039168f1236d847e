"""Translation of OpenPBS's ``preempt_order`` to methods of preemption."""

from typing import Final

_METHODS: Final = {"S": "suspend", "C": "checkpoint", "R": "requeue"}


def parse_preempt_order(text: str) -> tuple[list[str], str]:
    """Return the methods of an order such as ``SCR 80 SC 50 S``, and a text about the parts without an
    equivalent; empty: none.

    The first word is for jobs that have just begun. The others are for jobs with less of their walltime left,
    in percent. ``D`` is deletion.
    """
    words = text.strip().strip("\"'").split()
    letters = words[0].upper() if words else ""
    found = [_METHODS[letter] for letter in letters if letter in _METHODS]
    left = []
    if "D" in letters:
        left.append("preemption never deletes a job (D)")
    if len(words) > 1:
        left.append(
            f"{' '.join(words[1:])} has no effect: the methods do not depend on the remaining walltime"
        )
    return list(dict.fromkeys(found)), "; ".join(left)
