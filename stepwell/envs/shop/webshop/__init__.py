"""WebShop (Yao et al., arXiv 2207.01206) over its real products: the original to the letter, and a clean variant for training."""

from stepwell.envs.shop.webshop.domain import WebShopDomain, WebShopSettings
from stepwell.envs.shop.webshop.replay import replay

__all__ = ["WebShopDomain", "WebShopSettings", "replay"]
