"""The shop: generated (`ShopDomain`), or over real WebShop products."""

from stepwell.envs.shop.domain import ShopDomain

__all__ = ["ShopDomain"]
