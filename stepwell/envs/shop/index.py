"""A BM25 inverted index in numpy: small, exact, fast, and equal to Lucene's ranking where lengths are coded as Lucene codes them.

Legend of shape suffixes: D document, V vocabulary, P posting (one for each pair of a document and a term in it), K hit.

A posting is a document id (int32) and a small code of its pair (term frequency, document length). There are few such pairs, so the
float64 weight of a posting is one look-up in a table, and scores are exact float64 sums though a posting takes 6 to 8 bytes.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepwell.errors import ConfigError
from stepwell.types import Floats, Ids

__all__ = ["Hits", "Index", "exact_lengths", "lucene_lengths"]

_DENSE = 1 << 14
"""Up to so many documents every score is looked at; beyond, only those of documents that may still enter the hits."""
_SLACK = 1 + 1e-9
"""Covers the rounding of sums when a document is ruled out by a bound."""


class Hits(NamedTuple):
    """What a search finds: document ids, best first (equal scores by ascending id), and their scores. [K], [K]"""

    ids: Ids
    scores: Floats


def exact_lengths(lengths_D: Ids) -> Ids:
    """Document lengths as they are. [D] -> [D]"""
    return lengths_D


def lucene_lengths(lengths_D: Ids) -> Ids:
    """Document lengths as Lucene stores them in one byte: below 24 exact; above, `length - 24` cut to its leading 4 bits, plus 24.

    >>> lucene_lengths(np.array([5, 23, 39, 40, 41, 42, 107])).tolist()
    [5, 23, 39, 40, 40, 42, 104]
    """
    rest_D = np.maximum(lengths_D - 24, 0)
    bits_D = np.frexp(rest_D.astype(np.float64))[1]  # number of binary digits, 0 for 0
    drop_D = np.maximum(bits_D - 4, 0)
    return np.where(lengths_D < 24, lengths_D, (rest_D >> drop_D << drop_D) + 24)


class Index:
    """Documents as token sequences, ranked for a query by BM25 without the factor `k1 + 1` (Lucene 8 and later).

    ```
    score(d) = sum over query tokens t (a repeated token counts again) of idf(t) * tf / (tf + k1 * (1 - b + b * length(d) / average))
    idf(t)   = ln(1 + (D - df + 0.5) / (df + 0.5))
    ```

    Documents get ids 0, 1, ... in the order given, which is also the order of equal scores. The average is over exact lengths.

    Args:
        documents: One sequence of tokens for each document; consumed as a stream.
        k1: How soon repetitions of a term stop to count, >= 0.
        b: How much long documents are held back, in [0, 1].
        lengths: What stands for a document's length in the formula: `exact_lengths`, or `lucene_lengths` for Lucene's own ranks.

    >>> index = Index([["red", "shirt"], ["blue", "shirt"], ["red", "red", "sock"]])
    >>> index.search(["red", "shirt"], k=2).ids.tolist()
    [0, 2]
    """

    def __init__(
        self,
        documents: Iterable[Sequence[str]],
        *,
        k1: float = 0.9,
        b: float = 0.4,
        lengths: Callable[[Ids], Ids] = exact_lengths,
    ) -> None:
        if not (math.isfinite(k1) and k1 >= 0):
            raise ConfigError(f"k1 is {k1}; BM25 needs a finite number >= 0 (0.9 is usual).")
        if not 0 <= b <= 1:
            raise ConfigError(f"b is {b}; BM25 needs a number in [0, 1] (0.4 is usual).")
        vocabulary, terms, lengths_D = _read(documents)
        self._vocabulary = vocabulary
        self.num_documents = len(lengths_D)
        self.num_tokens = len(terms)
        self.lengths_D = lengths_D
        self._docs_P, tf_P, starts = _postings(terms, lengths_D, len(vocabulary))
        del terms
        self._starts = starts.tolist()
        coded_D = lengths(lengths_D)
        self._codes_P, table_tf, table_length = _pair_codes(tf_P, coded_D, self._docs_P)
        average = self.num_tokens / self.num_documents if self.num_documents else 1.0
        norm = k1 * (1.0 - b + b * table_length / average) if self.num_tokens else np.zeros(0)
        self._weights = table_tf / (table_tf + norm)
        df_V = np.diff(starts)
        idf_V = np.log1p((self.num_documents - df_V + 0.5) / (df_V + 0.5))
        self._idf = idf_V.tolist()
        small = self.num_documents <= _DENSE
        self._gains_P = np.repeat(idf_V, df_V) * self._weights[self._codes_P] if small else np.zeros(0)

    def __len__(self) -> int:
        return self.num_documents

    @property
    def num_terms(self) -> int:
        """Number of distinct terms V."""
        return len(self._vocabulary)

    @property
    def num_bytes(self) -> int:
        """Memory of the postings and tables (without the vocabulary's strings)."""
        return self._docs_P.nbytes + self._codes_P.nbytes + self._weights.nbytes + self.lengths_D.nbytes

    def document_frequency(self, term: str) -> int:
        """Number of documents that hold the term."""
        v = self._vocabulary.get(term)
        return 0 if v is None else self._starts[v + 1] - self._starts[v]

    def search(self, tokens: Sequence[str], k: int) -> Hits:
        """The best `k` documents that hold at least one of the tokens (fewer where fewer do).

        Args:
            tokens: The query, analysed as the documents were; their order does not matter.
            k: At least 1.
        """
        if k < 1:
            raise ConfigError(f"k is {k}; a search returns at least 1 hit.")
        counts = Counter(tokens)
        known = [(self._idf[v] * number, v) for token, number in counts.items() if (v := self._vocabulary.get(token)) is not None]
        if not known:
            return Hits(np.zeros(0, np.int64), np.zeros(0))
        known.sort(reverse=True)  # one order for any order of the tokens, and the terms that decide come first
        if len(self._gains_P):
            return _best(*self._all(known), k)
        return _best(*self._contenders(known, k), k)

    def _posting(self, v: int) -> tuple[NDArray[np.int32], Floats]:
        span = slice(self._starts[v], self._starts[v + 1])
        return self._docs_P[span], self._weights[self._codes_P[span]]

    def _all(self, known: list[tuple[float, int]]) -> tuple[Ids, Floats]:
        """Ids (ascending) and scores of all documents that hold a term; for few documents, in a handful of numpy calls."""
        docs, gains = [], []
        for idf, v in known:
            start, stop = self._starts[v], self._starts[v + 1]
            once = idf == self._idf[v]
            docs.append(self._docs_P[start:stop])
            gains.append(self._gains_P[start:stop] if once else idf * self._weights[self._codes_P[start:stop]])
        score_D: Floats = np.bincount(np.concatenate(docs), np.concatenate(gains), minlength=self.num_documents).astype(
            np.float64, copy=False
        )
        found = np.flatnonzero(score_D)
        return found, score_D[found]

    def _contenders(self, known: list[tuple[float, int]], k: int) -> tuple[Ids, Floats]:
        """As `_all`, without documents that cannot be among the best `k`.

        A term adds less than its idf. Once the k-th best score so far exceeds what all terms to come can add, a document not seen yet
        cannot enter: the long postings of common words are then only looked up for the documents that are still in.
        (Turtle and Flood 1995, MaxScore.)
        """
        score_D = np.zeros(self.num_documents)
        to_come = sum(idf for idf, _ in known)
        for place, (idf, v) in enumerate(known):
            docs, weights = self._posting(v)
            score_D[docs] += idf * weights
            to_come -= idf
            if len(docs) >= k and to_come < idf and (kth := _kth(score_D[docs], k)) > to_come * _SLACK:
                found = np.flatnonzero(score_D)
                return self._finish(found, score_D[found], known[place + 1 :], kth)
        found = np.flatnonzero(score_D)
        return found, score_D[found]

    def _finish(self, found: Ids, scores: Floats, rest: list[tuple[float, int]], kth: float) -> tuple[Ids, Floats]:
        to_come = sum(idf for idf, _ in rest)
        for idf, v in rest:
            stay = scores + to_come * _SLACK >= kth
            found, scores = found[stay], scores[stay]
            docs, weights = self._posting(v)
            place = np.minimum(np.searchsorted(docs, found), len(docs) - 1)
            scores = scores + np.where(docs[place] == found, idf * weights[place], 0.0)
            to_come -= idf
        return found, scores


def _read(documents: Iterable[Sequence[str]]) -> tuple[dict[str, int], NDArray[np.int32], Ids]:
    """Vocabulary, the term ids of all documents one after the other, and document lengths. [V], [tokens], [D]"""
    vocabulary: defaultdict[str, int] = defaultdict(count().__next__)
    term_of = vocabulary.__getitem__
    terms, lengths = array("i"), array("q")
    for tokens in documents:
        terms.extend(map(term_of, tokens))
        lengths.append(len(tokens))
    return dict(vocabulary), np.frombuffer(terms, np.int32), np.frombuffer(lengths, np.int64).copy()


def _postings(terms: NDArray[np.int32], lengths_D: Ids, num_terms: int) -> tuple[NDArray[np.int32], NDArray[np.int32], Ids]:
    """Documents and term frequencies of all postings by (term, document), and where each term's begin. [P], [P], [V + 1]"""
    num_documents = max(len(lengths_D), 1)
    keys = terms.astype(np.int64)
    keys *= num_documents
    keys += np.repeat(np.arange(len(lengths_D), dtype=np.int32), lengths_D)
    keys.sort()
    first = np.flatnonzero(np.concatenate([np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1]]))
    tf_P = np.diff(first, append=len(keys)).astype(np.int32)
    keys = keys[first]
    starts = np.searchsorted(keys, np.arange(num_terms + 1) * num_documents)
    keys %= num_documents
    return keys.astype(np.int32), tf_P, starts.astype(np.int64)


def _pair_codes(
    tf_P: NDArray[np.int32], coded_D: Ids, docs_P: NDArray[np.int32]
) -> tuple[NDArray[np.uint16] | NDArray[np.uint32], Floats, Floats]:
    """A code for each posting's pair (frequency, length), and what each code stands for: its frequency and its length."""
    kinds, kind_D = np.unique(coded_D, return_inverse=True)
    pair_P = tf_P.astype(np.int64)
    pair_P *= len(kinds)
    pair_P += kind_D[docs_P]
    seen = np.zeros(int(pair_P.max(initial=0)) + 1, np.bool_)
    seen[pair_P] = True
    pairs = np.flatnonzero(seen) if len(pair_P) else np.zeros(0, np.int64)
    code_of = np.cumsum(seen) - 1
    tf, kind = np.divmod(pairs, max(len(kinds), 1))
    codes_P = code_of.astype(np.uint16)[pair_P] if len(pairs) <= 1 << 16 else code_of.astype(np.uint32)[pair_P]
    return codes_P, tf.astype(np.float64), kinds[kind].astype(np.float64)


def _kth(scores: Floats, k: int) -> float:
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def _best(found: Ids, scores: Floats, k: int) -> Hits:
    """The best k of `found` (ascending ids), equal scores by ascending id."""
    if len(found) > 4 * k:
        stay = scores >= _kth(scores, k)
        found, scores = found[stay], scores[stay]
    order = np.argsort(-scores, kind="stable")[:k]
    return Hits(found[order].astype(np.int64, copy=False), scores[order])
