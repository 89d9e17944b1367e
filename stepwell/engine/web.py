"""The address of a server: what may be sent where, and who answers there."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import urlsplit

from stepwell.engine.servers import ServerKind
from stepwell.errors import ConfigError, ServerError
from stepwell.types import JSON

__all__ = ["Web"]

_NO_KEY = "tml-no-key"
"""What is sent to servers that look at no key; the SDK wants one of this form."""
_HOSTED = "thinkingmachines.dev"
_KNOWN = {
    "skyrl-fsdp": {"df8e08": "SkyRL 0.4.0"},
    "skyrl-megatron": {"df8e08": "SkyRL 0.4.0"},
    "skyrl-jax": {"df8e08": "SkyRL 0.4.0"},
}
"""Kind -> fingerprint of a server's own description of its API -> the version that was tested."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A key is not carried to where a server points."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class Web:
    """A checked address and the key for it. The key is read from the environment, held here, and shown nowhere.

    Args:
        url: `https://...`, or `http://` on this machine.
        key_name: The environment variable that holds the key.
        plain_http: `refused`, or `allowed`: plain http to another machine, where all that is sent, the key too, can be read on the way.

    Raises:
        ConfigError: An address or a key that cannot be used.
    """

    def __init__(self, url: str, key_name: str, plain_http: str) -> None:
        self.url = _checked(url, plain_http)
        self.key_name = key_name
        key = os.environ.get(key_name, "")
        if key and not key.startswith(("tml-", "eyJ")):
            raise ConfigError(f"The key in the environment variable {key_name} does not begin with tml-, as keys of the Tinker API do.")
        self.key = key or _NO_KEY

    def __repr__(self) -> str:
        return f"Web({self.url})"

    def check_key(self, kind: ServerKind) -> None:
        """Raises `ConfigError` where a server of this kind wants a key, and there is none."""
        if kind.needs_key and self.key == _NO_KEY:
            raise ConfigError(f"A server of kind {kind.name!r} wants a key: put it into the environment variable {self.key_name}.")

    def known_kinds(self) -> list[str]:
        """The kinds of servers that this one may be, by its address and its own description of its API."""
        host = urlsplit(self.url).hostname or ""
        if host == _HOSTED or host.endswith(f".{_HOSTED}"):
            return ["tinker"]
        found = self.fingerprint()
        return [kind for kind, versions in _KNOWN.items() if found in versions]

    def is_alive(self) -> bool:
        """Whether anyone answers there."""
        try:
            self._get("/api/v1/healthz", 5.0)
        except urllib.error.HTTPError:
            return True
        except (OSError, ValueError, http.client.HTTPException):
            return False
        return True

    def served_models(self) -> dict[str, int | None]:
        """Name -> longest context, where it is said, of the base models.

        Raises:
            ConfigError: What answers there does not speak the Tinker API, or refuses the key.
            ServerError: Nothing answers.
        """
        try:
            said = self._get("/api/v1/get_server_capabilities", 30.0)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise ConfigError(
                    f"The server at {self.url} refuses the key in the environment variable {self.key_name} ({error.code})."
                ) from None
            self._is_another(f"it answers {error.code}")
        except json.JSONDecodeError:
            self._is_another("it answers something else than JSON")
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerError(f"Nothing can be reached at {self.url} ({reason}); start the server, or correct engine.url.") from None
        models = said.get("supported_models") if isinstance(said, dict) else None
        if not isinstance(models, list):
            self._is_another("its answer has no supported_models")
        found: dict[str, int | None] = {}
        for model in models:
            if isinstance(model, dict) and isinstance(model.get("model_name"), str):
                length = model.get("max_context_length")
                found[str(model["model_name"])] = length if isinstance(length, int) else None
        return found

    def _is_another(self, why: str) -> NoReturn:
        raise ConfigError(
            f"What answers at {self.url} is no server of the Tinker API ({why} to get_server_capabilities); correct engine.url."
        ) from None

    def fingerprint(self) -> str | None:
        """Six hexadecimal digits of the calls and fields in the server's own description of its API; None where it has none."""
        try:
            said = self._get("/openapi.json", 30.0)
        except (OSError, ValueError, http.client.HTTPException):
            return None
        paths = said.get("paths") if isinstance(said, dict) else None
        parts = said.get("components") if isinstance(said, dict) else None
        schemas = parts.get("schemas") if isinstance(parts, dict) else None
        if not isinstance(paths, dict) or not isinstance(schemas, dict):
            return None
        fields = {
            name: sorted(of) for name, one in schemas.items() if isinstance(one, dict) and isinstance(of := one.get("properties"), dict)
        }
        return hashlib.sha256(json.dumps([sorted(paths), fields], sort_keys=True).encode()).hexdigest()[:6]

    def version_notice(self, kind: ServerKind) -> str:
        """A warning where the server is of a version that was not tested, else ""."""
        known = _KNOWN.get(kind.name, {})
        if self.fingerprint() in known:
            return ""
        tested = f"tested was {', '.join(sorted(set(known.values())))}" if known else f"its maths was read in {kind.source}, never run"
        return (
            f"The server at {self.url} is of an unknown version of kind {kind.name!r} ({tested}). "
            f"See what it computes before you train: stepwell engine check {self.url}"
        )

    def post(self, path: str, body: Mapping[str, JSON]) -> None:
        """Sends what needs no answer; failures are let pass."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), self._headers(), method="POST")
        try:
            with _OPENER.open(request, timeout=30.0) as response:
                response.read()
        except (OSError, ValueError, http.client.HTTPException):
            return

    def _get(self, path: str, timeout_s: float) -> JSON:
        request = urllib.request.Request(self.url + path, headers=self._headers())
        with _OPENER.open(request, timeout=timeout_s) as response:
            said: JSON = json.loads(response.read())
        return said

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", "X-API-Key": self.key, "User-Agent": "stepwell"}


def _checked(url: str, plain_http: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"engine.url is {url!r}; it should be an address such as http://127.0.0.1:8000 or https://host.")
    if parts.username or parts.password:
        raise ConfigError("engine.url holds a name or a password; keys belong into the environment (engine.key_name).")
    if parts.query or parts.fragment:
        raise ConfigError(f"engine.url is {url!r}; give the server's address alone, without what follows a ? or #.")
    if parts.scheme == "http" and not _is_loopback(host) and plain_http != "allowed":
        raise ConfigError(
            f"engine.url is {url!r}: plain http to another machine, where what is sent can be read on the way; use https, a tunnel to "
            "127.0.0.1, or set engine.plain_http=allowed if the network is your own."
        )
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
