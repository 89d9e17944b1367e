"""Each test of the walls runs in every isolation that this machine has."""

from __future__ import annotations

import pytest

from stepwell.sandbox import Isolation, available, choose


@pytest.fixture(scope="session", params=["bwrap", "sandlock"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    name = request.param
    if why := available()[name]:
        pytest.skip(f"{name} does not work here: {why} (see docs/concepts/sandbox.md for how to get it)")
    return choose(name)


@pytest.fixture(scope="session")
def any_isolation() -> Isolation:
    """The best that there is: for tests of what is judged, not of the walls."""
    for name, why in available().items():
        if not why:
            return choose(name)  # type: ignore[arg-type]
    pytest.skip(f"no isolation works here: {available()} (see docs/concepts/sandbox.md for how to get one)")
