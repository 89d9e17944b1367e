"""Nouns of titles: from the folder, from a kept list, or from spaCy (played by a stand-in here)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.envs.shop.webshop.catalogue import load_products
from stepwell.envs.shop.webshop.nouns import title_nouns
from stepwell.errors import ConfigError, DataError, MissingExtraError

MODEL = "en_core_web_sm-3.6.0"


@pytest.fixture
def folder(tmp_path: Path, small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder without nouns, and an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    for path in small_folder.glob("*.json"):
        if path.name != "title_nouns.json":
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def tagger(name: str, disable: list[str]) -> SimpleNamespace:
    """Takes words with a capital for proper nouns."""

    def pipe(titles: list[str], batch_size: int) -> list[list[SimpleNamespace]]:
        return [[SimpleNamespace(text=word, pos_="PROPN" if word[0].isupper() else "ADJ") for word in title.split()] for title in titles]

    return SimpleNamespace(pipe=pipe)


def with_spacy(monkeypatch: pytest.MonkeyPatch, load: object) -> None:
    module = ModuleType("spacy")
    monkeypatch.setattr(module, "load", load, raising=False)
    monkeypatch.setitem(sys.modules, "spacy", module)


def test_nouns_of_the_folder_are_taken_as_they_are(small_compat: WebShopDomain) -> None:
    assert small_compat.store.nouns["X000000004"] == ("cassia", "infusion", "infusion", "no.")


def test_without_them_the_missing_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r"spacy .*pip install 'stepwell\[webshop\]'"):
        WebShopDomain(WebShopSettings(folder))


def test_a_missing_model_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, disable: list[str]) -> None:
        raise OSError("no such model")

    with_spacy(monkeypatch, load)
    with pytest.raises(ConfigError, match="python -m spacy download en_core_web_sm"):
        WebShopDomain(WebShopSettings(folder))


def test_tagged_nouns_are_kept_beside_the_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_spacy(monkeypatch, tagger)
    first = WebShopDomain(WebShopSettings(folder)).store.nouns
    assert first["X000000004"] == ("cassia", "infusion", "no.")
    assert len(list(folder.glob("title_nouns-en_core_web_sm-*.json.gz"))) == 1
    monkeypatch.setitem(sys.modules, "spacy", None)
    assert WebShopDomain(WebShopSettings(folder)).store.nouns == first


def test_a_folder_that_cannot_be_written_keeps_them_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_spacy(monkeypatch, tagger)
    write = Path.write_bytes

    def refuse(path: Path, content: bytes) -> int:
        if path.parent == folder:
            raise PermissionError("read-only")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    WebShopDomain(WebShopSettings(folder))
    assert list(folder.glob("*nouns*")) == []
    assert len(list((folder.parent / "cache" / "stepwell" / "webshop").glob("title_nouns-*.json.gz"))) == 1


def test_kept_nouns_belong_to_the_titles_they_were_made_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_spacy(monkeypatch, tagger)
    WebShopDomain(WebShopSettings(folder))
    items = folder / "items_shuffle_1000.json"
    items.write_text(items.read_text(encoding="utf-8").replace("Cassia Infusion No. 4", "Other Infusion No. 4"), encoding="utf-8")
    assert WebShopDomain(WebShopSettings(folder)).store.nouns["X000000004"] == ("other", "infusion", "no.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "must hold a JSON object from model to noun lists, got list"),
        ('{"en_core_web_sm-3.6.0": 3}', "must be a JSON object from asin to nouns, got int"),
        ('{"en_core_web_sm-3.6.0": {"X000000004": "tea"}}', "the nouns of X000000004 must be a list, got 'tea'"),
    ],
)  # fmt: skip
def test_a_noun_file_that_is_none_is_named(folder: Path, content: str, message: str) -> None:
    (folder / "title_nouns.json").write_text(content, encoding="utf-8")
    products = load_products(folder / "items_shuffle_1000.json", folder / "items_ins_v2_1000.json")
    with pytest.raises(DataError, match=message):
        title_nouns(folder, products, MODEL)
