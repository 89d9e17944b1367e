"""Reading catalogue files: streamed, and every fault named with file and line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings, files
from stepwell.envs.shop.webshop.catalogue import products_of
from stepwell.envs.shop.webshop.files import find, folder_of, need, read_json, stream_array, stream_object
from stepwell.errors import DataError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=6), st.sampled_from([None, 1]))
def test_a_streamed_array_is_what_json_reads_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("array") / "a.json"
    path.write_text(json.dumps(values, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for chunk in (1, 3, 1 << 18):
            patch.setattr(files, "_CHUNK", chunk)
            assert list(stream_array(path)) == values


@given(st.dictionaries(st.text(), json_values, max_size=6))
def test_a_streamed_object_is_what_json_reads(tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]) -> None:
    path = tmp_path_factory.mktemp("object") / "o.json.gz"
    path.write_bytes(gzip.compress(json.dumps(values, ensure_ascii=False).encode()))
    assert dict(stream_object(path)) == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n \n", "line 3: expected '\\[', got the end of the file"),
        ("not json", "line 1: expected '\\[', got 'n'"),
        ("{}", "line 1: expected '\\[', got '{'"),
        ('[{"a": 1},\n{"a": 2},\n{"a": "x', "line 3: Unterminated string.*truncated"),
        ('[{"a": 1},\n{"a": 2}', "line 2: expected ']', got the end of the file"),
        ('[{"a": 1},\n', "line 2: the file ends where an element should stand"),
        ('[{"a": 1},\n{"a" 2}]', "line 2: Expecting ':' delimiter"),
        ('[{"a": 1}\n{"a": 2}]', "line 2: expected ']', got '{'"),
        ('[1, 2]\n,', "line 2: the JSON ended, but ','"),
    ],
)  # fmt: skip
def test_a_damaged_array_is_named_with_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "items.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"items.json.*{message}"):
        list(stream_array(path))


def test_a_fault_late_in_a_file_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 64)
    path = tmp_path / "items.json"
    path.write_text("[\n" + '{"a": 1},\n' * 500 + '{"a": oops}]', encoding="utf-8")
    with pytest.raises(DataError, match="line 502"):
        list(stream_array(path))


def test_a_damaged_value_does_not_eat_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 64)
    monkeypatch.setattr(files, "_LONGEST", 1024)
    path = tmp_path / "items.json"
    path.write_text('["never closed' + "x" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1: Unterminated string.*1024"):
        list(stream_array(path))


def test_other_damage_is_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(["x" * 99] * 999).encode())[:-20])
    with pytest.raises(DataError, match=r"cut.json.gz.*gzip stream is damaged or truncated"):
        list(stream_array(cut))
    no_gzip = tmp_path / "plain.json.gz"
    no_gzip.write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match=r"plain.json.gz.*gzip stream is damaged"):
        read_json(no_gzip)
    latin = tmp_path / "latin.json"
    latin.write_bytes('["café"]'.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.json, line 1: the text is not UTF-8"):
        read_json(latin)
    keys = tmp_path / "keys.json"
    keys.write_text("{1: 2}", encoding="utf-8")
    with pytest.raises(DataError, match=r"keys.json, line 1: a key is 1"):
        list(stream_object(keys))


def test_folders_and_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No data folder was given"):
        folder_of("")
    with pytest.raises(DataError, match="missing does not exist"):
        folder_of(tmp_path / "missing")
    (tmp_path / "b.json.gz").touch()
    with pytest.raises(DataError, match=r"b.json.gz is a file"):
        folder_of(tmp_path / "b.json.gz")
    assert find(tmp_path, "a.json", "b.json") == tmp_path / "b.json.gz"
    with pytest.raises(DataError, match=r"no file with products; expected a.json\[.gz\] or c.json\[.gz\]"):
        need(tmp_path, "products", "a.json", "c.json")


@pytest.mark.parametrize("missing", ["items_shuffle_1000.json", "items_ins_v2_1000.json", "color_words.json"])
def test_a_missing_file_of_the_data_folder_is_named(tmp_path: Path, small_folder: Path, missing: str) -> None:
    for path in small_folder.glob("*.json"):
        if path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=f"{tmp_path.name} has no file with .*{missing}"):
        WebShopDomain(WebShopSettings(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no products"),
        ("[3]", "element 0: a product must be a JSON object, got int"),
        ('[{"asin": "A"}]', "element 0: a product needs a text 'asin' and a text 'name', got \\['asin'\\]"),
        ('[{"asin": "A", "name": "n", "pricing": "$ten"}]', "product A: the pricing is '\\$ten'"),
        ('[{"asin": "A", "name": "n", "customization_options": {"color": 3}}]', "product A: option 'color' is 3"),
        ('[{"asin": "A", "name": "n", "customization_options": {"color": [{}]}}]', "product A: option 'color' has a choice without"),
        ('[{"asin": "A", "name": "n"}]', "1 products but no synthetic goal"),
    ],
)  # fmt: skip
def test_records_that_are_no_products_are_named(tmp_path: Path, small_folder: Path, content: str, message: str) -> None:
    for path in small_folder.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "items_shuffle_1000.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        WebShopDomain(WebShopSettings(tmp_path))


_READ_AND_REPORT = """
import resource, sys
from pathlib import Path
from stepwell.envs.shop.webshop.catalogue import products_of
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(1 for product in products_of(Path(sys.argv[1]), {}))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_hundred_thousand_products_are_read_in_bounded_memory(tmp_path: Path, small_folder: Path) -> None:
    records = [json.dumps(record) for record in list(stream_array(small_folder / "items_shuffle_1000.json"))[:80]]
    path = tmp_path / "items_shuffle.json"
    with path.open("w", encoding="utf-8") as file:  # one line, as upstream's file has it
        file.write("[")
        for number in range(100_000):
            record = records[number % len(records)]
            asin = json.dumps(f"X{number % len(records):09d}")
            file.write((", " if number else "") + record.replace(asin, json.dumps(f"Y{number:09d}"), 1))
        file.write("]")
    assert path.stat().st_size > 50_000_000
    answer = subprocess.run([sys.executable, "-c", _READ_AND_REPORT, str(path)], capture_output=True, text=True, check=True)
    count, kilobytes = map(int, answer.stdout.split())
    assert count == 100_000
    assert kilobytes < 25_000, "reading kept the file in memory (the asins alone take 15 MB)"


def test_products_are_cleaned_as_the_original_cleans_them(small_folder: Path) -> None:
    products = {p.asin: p for p in products_of(small_folder / "items_shuffle_1000.json", {"X000000000": {"attributes": ["a"]}})}
    assert len(products) == 84  # a repeat, "nan" and a long asin are dropped
    assert products["X000000000"].title != "a repeat, to be dropped"
    assert (products["X000000000"].attributes, products["X000000001"].attributes) == (("a",), ())
    assert products["X000000001"].options == {}
    assert products["X000000002"].options == {"color": ('a4 "red" café', "blue_1 | 2")}
    assert (products["X000000002"].prices, products["X000000002"].price_tag) == ((100.0,), "$100.0")
    assert (products["X000000008"].prices, products["X000000008"].price_tag) == ((1299.0, 1399.5), "$1299.0 to $1399.5")
    assert products["X000000004"].bullets == ("", "second bullet")
    assert products["X000000005"].bullets == (products["X000000005"].bullets[0],)
    assert products["X000000003"].path == {"Clothing", "Men", "Shoes"}
    assert products["X000000003"].query == "running shoes"
    assert products["X000000003"].indexed_text.endswith("top: small, large, and bottom: small, description")
