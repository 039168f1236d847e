"""The fault of a site's settings as place and words."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from schedd.service.settings.site import SiteSettings
from schedd.wire.section import main_problems, problem_place, problem_text


def settings_fault(settings: Mapping[str, Any]) -> str:
    """Return the first fault; fails the test if there is none."""
    with pytest.raises(ValidationError) as caught:
        SiteSettings.model_validate(settings)
    problem = main_problems(caught.value.errors())[0]
    return f"{'.'.join(map(str, problem_place(problem)))}: {problem_text(problem)}"
