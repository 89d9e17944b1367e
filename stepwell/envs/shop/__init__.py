"""The shop: generated (`ShopDomain`, and `BasketDomain` for whole shopping lists), or over real WebShop products."""

from stepwell.envs.shop.basket_domain import BasketDomain
from stepwell.envs.shop.domain import ShopDomain

__all__ = ["BasketDomain", "ShopDomain"]
