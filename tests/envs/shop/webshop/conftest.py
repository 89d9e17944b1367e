"""A small invented catalogue, and the real one where recorded data is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings

SMALL = Path(__file__).parents[3] / "data" / "webshop"


@pytest.fixture(scope="session")
def small_folder() -> Path:
    return SMALL


@pytest.fixture(scope="session")
def small_compat() -> WebShopDomain:
    return WebShopDomain(WebShopSettings(SMALL))


@pytest.fixture(scope="session")
def small_clean() -> WebShopDomain:
    return WebShopDomain(WebShopSettings(SMALL, variant="clean"))


@pytest.fixture(scope="session")
def real_compat(shared_data: Path) -> WebShopDomain:
    return WebShopDomain(WebShopSettings(shared_data / "data" / "webshop"))


@pytest.fixture(scope="session")
def real_clean(shared_data: Path) -> WebShopDomain:
    return WebShopDomain(WebShopSettings(shared_data / "data" / "webshop", variant="clean"))


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> Path:
    return shared_data / "golden" / "webshop"
