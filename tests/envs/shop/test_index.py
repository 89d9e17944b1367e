"""BM25 against a plain evaluation of its formula, and the laws of a ranking."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.shop import index as index_module
from stepwell.envs.shop.index import Index, exact_lengths, lucene_lengths
from stepwell.errors import ConfigError

WORDS = ["red", "blue", "shirt", "sock", "cotton", "wool", "long", "short"]
documents_of_words = st.lists(st.lists(st.sampled_from(WORDS), max_size=30), max_size=30)
queries = st.lists(st.sampled_from([*WORDS, "unseen"]), max_size=8)


def plain_ranking(documents: list[list[str]], query: list[str], lossy: bool) -> list[tuple[int, float]]:
    """The formula of the docstring, one document at a time."""
    average = sum(map(len, documents)) / max(len(documents), 1)
    ranking = []
    for i, document in enumerate(documents):
        tf, total, length = Counter(document), 0.0, len(document)
        if lossy:
            length = int(lucene_lengths(np.array([length]))[0])
        for token in query:
            df = sum(token in d for d in documents)
            if tf[token]:
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                total += idf * tf[token] / (tf[token] + 0.9 * (1 - 0.4 + 0.4 * length / average))
        if total > 0:
            ranking.append((i, total))
    return sorted(ranking, key=lambda pair: (-round(pair[1], 9), pair[0]))


@given(documents_of_words, queries, st.booleans())
def test_ranks_and_scores_are_those_of_the_formula(documents: list[list[str]], query: list[str], lossy: bool) -> None:
    index = Index(documents, lengths=lucene_lengths if lossy else exact_lengths)
    expected = plain_ranking(documents, query, lossy)[:10]
    hits = index.search(query, k=10)
    assert np.allclose(hits.scores, [score for _, score in expected], rtol=1e-12)
    separated = all(abs(a[1] - b[1]) > 1e-9 or a[1] == b[1] for a, b in pairwise(expected))
    if separated and len(plain_ranking(documents, query, lossy)) <= 10:
        assert [i for i, _ in expected] == hits.ids.tolist() or not np.all(np.diff(hits.scores) != 0)


@given(documents_of_words, queries, st.randoms())
def test_the_order_of_the_query_does_not_matter(documents: list[list[str]], query: list[str], random: object) -> None:
    index = Index(documents)
    shuffled = list(query)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = index.search(query, k=5), index.search(shuffled, k=5)
    assert one.ids.tolist() == other.ids.tolist()
    assert one.scores.tolist() == other.scores.tolist()


@given(documents_of_words, queries)
def test_fewer_hits_are_the_head_of_more(documents: list[list[str]], query: list[str]) -> None:
    index = Index(documents)
    few, many = index.search(query, k=3), index.search(query, k=20)
    assert few.ids.tolist() == many.ids[:3].tolist()
    assert np.all(np.diff(many.scores) <= 0)


@given(documents_of_words, queries)
def test_a_doubled_query_doubles_scores_and_keeps_ranks(documents: list[list[str]], query: list[str]) -> None:
    index = Index(documents)
    one, two = index.search(query, k=30), index.search(query + query, k=30)
    assert one.ids.tolist() == two.ids.tolist()
    assert np.allclose(2 * one.scores, two.scores, rtol=1e-12)


def test_equal_scores_come_by_ascending_id_also_at_the_cut() -> None:
    index = Index([["a"], ["b"]] * 300)
    assert index.search(["b"], k=4).ids.tolist() == [1, 3, 5, 7]


def test_the_large_path_gives_the_same_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    chance = 1 / np.arange(1, 201)
    documents = [[f"w{i}" for i in random.choice(200, 12, p=chance / chance.sum())] for _ in range(3000)]
    small = Index(documents)
    asked = [[f"w{i}" for i in random.choice(200, 8)] for _ in range(60)]
    expected = [small.search(query, k=10) for query in asked]
    monkeypatch.setattr(index_module, "_DENSE", 0)
    large = Index(documents)
    finished = 0
    original = Index._finish

    def counted(*args: object) -> object:
        nonlocal finished
        finished += 1
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "_finish", counted)
    for query, hits in zip(asked, expected, strict=True):
        found = large.search(query, k=10)
        assert found.ids.tolist() == hits.ids.tolist()
        assert found.scores.tolist() == hits.scores.tolist()
    assert finished > 10, "the bound never ruled anything out: the test does not reach the path it is about"


def test_no_known_token_and_no_document_find_nothing() -> None:
    assert Index([["a"]]).search(["b"], k=3).ids.tolist() == []
    assert Index([["a"]]).search([], k=3).ids.tolist() == []
    assert Index([]).search(["a"], k=3).ids.tolist() == []
    assert Index([[], []]).search(["a"], k=3).ids.tolist() == []
    assert Index([[], ["a"]]).search(["a"], k=3).ids.tolist() == [1]


def test_counts() -> None:
    index = Index(iter([["a", "b", "a"], ["b"]]))
    assert (len(index), index.num_terms, index.num_tokens, index.lengths_D.tolist()) == (2, 2, 4, [3, 1])
    assert (index.document_frequency("a"), index.document_frequency("b"), index.document_frequency("c")) == (1, 2, 0)


@pytest.mark.parametrize(("length", "stored"), [(0, 0), (23, 23), (24, 24), (39, 39), (40, 40), (41, 40), (56, 56), (59, 56), (1000, 984)])
def test_lucene_keeps_four_leading_bits_above_24(length: int, stored: int) -> None:
    assert lucene_lengths(np.array([length])).tolist() == [stored]


def test_bad_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="k1 is -1"):
        Index([], k1=-1)
    with pytest.raises(ConfigError, match="b is 2"):
        Index([], b=2)
    with pytest.raises(ConfigError, match="k is 0"):
        Index([["a"]]).search(["a"], k=0)
