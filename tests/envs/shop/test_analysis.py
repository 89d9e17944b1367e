"""The analyser: words, terms and stems."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.shop import analysis
from stepwell.envs.shop.analysis import STOP_WORDS, analyse, words
from stepwell.envs.shop.porter import stem


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("the women's l'oreal 3.5 wi-fi wi_fi", ["women", "l'oreal", "3.5", "wi", "fi", "wi_fi"]),
        ("women’s women＇s women`s", ["women", "women", "women", "s"]),
        ("foo:bar 12:30 3;5 a;b a.1 .5 5.1.2", ["foo:bar", "12", "30", "3;5", "b", "1", "5", "5.1.2"]),
        ("12\"x12\" c++ b&w 28” × 9", ["12", "x12", "c", "b", "w", "28", "9"]),
        ("❤️ heart ☞ ® 1️⃣ 👨‍💼 🇩🇪", ["❤️", "heart", "☞", "®", "1️⃣", "👨‍💼", "🇩🇪"]),
        ("日本語 カタカナ っ ½ ① ", ["日", "本", "語", "カタカナ", "っ"]),
        ("zero\u200bwidth soft\u00adhyphen \ufeffshoes", ["zero", "width", "soft\u00adhyphen", "shoe"]),
        ("naïve łódź ﬁber µm ヽ(ﾟ", ["naïv", "łódź", "ﬁber", "µm", "ヽ"]),
        ("- / ... ' \" _ __", []),
    ],
)  # fmt: skip
def test_words_are_found_where_unicode_puts_their_boundaries(text: str, terms: list[str]) -> None:
    assert analyse(text) == terms


def test_long_words_are_cut_as_lucene_cuts_them() -> None:
    assert [len(word) for word in words("x" * 600)] == [255, 255, 90]


def test_stop_words_never_come_out() -> None:
    assert analyse(" ".join(sorted(STOP_WORDS))) == []
    assert len(STOP_WORDS) == 33


@given(st.text(st.characters(max_codepoint=127)))
def test_the_fast_pattern_for_ascii_is_the_full_one(text: str) -> None:
    assert analysis._ascii_pattern().findall(text) == analysis._pattern().findall(text)


@given(st.text())
def test_any_text_is_analysed_and_pieces_come_from_it(text: str) -> None:
    found = list(words(text))
    assert all(word in text for word in found)
    assert list(words(" ".join(found))) == found


@given(st.lists(st.sampled_from(["red", "shoes", "3.5", "l'oreal", "wi_fi", "★"]), max_size=6))
def test_terms_of_parts_are_the_terms_of_the_whole(parts: list[str]) -> None:
    assert analyse(" ".join(parts)) == [term for part in parts for term in analyse(part)]


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        *(("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre")),
        *(("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"), ("sized", "size")),
        *(("hopping", "hop"), ("falling", "fall"), ("failing", "fail"), ("filing", "file"), ("happy", "happi"), ("sky", "sky")),
        *(("relational", "relat"), ("conditional", "condit"), ("rational", "ration"), ("digitizer", "digit"), ("assembly", "assembl")),
        *(("possibly", "possibl"), ("radically", "radic"), ("vietnamization", "vietnam"), ("operator", "oper"), ("feudalism", "feudal")),
        *(("decisiveness", "decis"), ("technology", "technolog"), ("electricity", "electr"), ("goodness", "good"), ("allowance", "allow")),
        *(
            ("adjustable", "adjust"),
            ("replacement", "replac"),
            ("adoption", "adopt"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("roll", "roll"),
        ),
        *(("controlling", "control"), ("s", "s"), ("us", "us"), ("y", "y"), ("", "")),
    ],
)
def test_porter_stems(word: str, stemmed: str) -> None:
    """The examples of Porter's paper, and his later rules (`assembly`, `possibly`, `technology`)."""
    assert stem(word) == stemmed


def test_the_terms_of_every_recorded_query_are_lucenes(shared_data: Path) -> None:
    with gzip.open(shared_data / "golden/webshop/search.jsonl.gz", "rt", encoding="utf-8") as lines:
        recorded = [json.loads(line) for line in lines]
    assert len(recorded) == 360
    wrong = [row["sent"] for row in recorded if row["tokens"] is not None and analyse(row["sent"]) != row["tokens"]]
    assert wrong == []
