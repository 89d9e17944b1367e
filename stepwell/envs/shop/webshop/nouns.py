"""The nouns of product titles, which the reward compares: from the data folder, or tagged by spaCy once and kept."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.files import find, read_json
from stepwell.errors import ConfigError, DataError, MissingExtraError, nearest
from stepwell.types import JSON

__all__ = ["title_nouns"]

_TAGGER = "en_core_web_sm"


def title_nouns(folder: Path, products: Sequence[Product], model: str) -> dict[str, tuple[str, ...]]:
    """asin -> lower-case nouns and proper nouns of its title, in order, with repetitions.

    They are taken from `title_nouns.json[.gz]` of the data folder ({model: {asin: [nouns]}}) where that covers the catalogue; else from
    what an earlier call kept; else spaCy tags all titles (extra `webshop`), and the result is kept beside the data, or in the user's
    cache folder where the data folder cannot be written.

    Args:
        model: Which of the file's models to take, e.g. `en_core_web_sm-3.6.0`.
    """
    path = find(folder, "title_nouns.json")
    if path is not None:
        lists = _of_model(path, model)
        if all(product.asin in lists for product in products):
            return {product.asin: lists[product.asin] for product in products}
    digest = hashlib.blake2b("\n".join(f"{p.asin}\t{p.title}" for p in products).encode(errors="surrogatepass"), digest_size=8).hexdigest()
    name = f"title_nouns-{_TAGGER}-{digest}.json"
    for place in (folder, _cache_folder()):
        kept = find(place, name)
        if kept is not None:
            return _of_model(kept, _TAGGER)
    lists = dict(zip((p.asin for p in products), _tagged([p.title for p in products]), strict=True))
    _keep(lists, folder, f"{name}.gz")
    return lists


def _of_model(path: Path, model: str) -> dict[str, tuple[str, ...]]:
    content = read_json(path)
    if not isinstance(content, Mapping):
        raise DataError(f"{path} must hold a JSON object from model to noun lists, got {type(content).__name__}.")
    if model not in content:
        raise ConfigError(f"{path} has no noun lists of {model!r}; {nearest(model, content)}.")
    lists = content[model]
    if not isinstance(lists, Mapping):
        raise DataError(f"{path}: the noun lists of {model!r} must be a JSON object from asin to nouns, got {type(lists).__name__}.")
    return {asin: _nouns(path, asin, nouns) for asin, nouns in lists.items()}


def _nouns(path: Path, asin: str, nouns: JSON) -> tuple[str, ...]:
    if not isinstance(nouns, list):
        raise DataError(f"{path}: the nouns of {asin} must be a list, got {nouns!r}.")
    return tuple(noun for noun in nouns if isinstance(noun, str))


def _tagged(titles: Sequence[str]) -> list[tuple[str, ...]]:
    try:
        import spacy
    except ImportError:
        raise MissingExtraError(
            "spacy (needed to find the nouns of titles, as the data folder has no title_nouns.json for them)", "webshop"
        ) from None
    try:
        tagger = spacy.load(_TAGGER, disable=["parser", "ner", "lemmatizer"])
    except OSError:
        raise ConfigError(f"spaCy has no model {_TAGGER}; install it with: python -m spacy download {_TAGGER}") from None
    documents = tagger.pipe(titles, batch_size=256)
    return [tuple(token.text.lower() for token in document if token.pos_ in ("NOUN", "PROPN")) for document in documents]


def _keep(lists: Mapping[str, Sequence[str]], folder: Path, name: str) -> None:
    """Writes the lists beside the data, or in the cache folder; a folder that cannot be written only costs the next start its time."""
    content = gzip.compress(json.dumps({_TAGGER: {asin: list(nouns) for asin, nouns in lists.items()}}).encode(), mtime=0)
    for place in (folder, _cache_folder()):
        try:
            place.mkdir(parents=True, exist_ok=True)
            part = place / f".{name}.{os.getpid()}"
            part.write_bytes(content)
            part.replace(place / name)
        except OSError:
            continue
        return


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stepwell" / "webshop"
