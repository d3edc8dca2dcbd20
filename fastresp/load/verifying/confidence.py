"""Estimate from a sample how many rows differ at most."""

from __future__ import annotations

import math

__all__ = ["CONFIDENCE", "at_most", "of_any_number"]

CONFIDENCE = 0.95
# Steps of the bisection, enough for all digits of a float.
STEPS = 60
# The continued fraction is evaluated until it changes by less than this.
PRECISION = 1e-12
MAX_TERMS = 10_000
TINY = 1e-300


def at_most(differing: int, looked_at: int, rows: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper confidence limit of the share of rows that differ.

    The limit is at most the share that would result if all rows outside the sample differed.

    Args:
        differing: number of rows of the sample that differ.
        looked_at: number of rows of the sample.
        rows: number of rows of the source.
        confidence: between 0 and 1, both excluded.
    """
    certain = (differing + rows - looked_at) / rows
    return min(certain, of_any_number(differing, looked_at, confidence))


def of_any_number(differing: int, looked_at: int, confidence: float) -> float:
    """Return the upper limit of the share for a sample from infinitely many rows.

    The limit is exact if the rows are chosen independently. Source: Clopper and Pearson, "The Use
    of Confidence or Fiducial Limits Illustrated in the Case of the Binomial", Biometrika 26 (1934).
    """
    if differing >= looked_at:
        return 1.0
    if differing == 0:  # about 3 / looked_at, the "rule of three"
        return -math.expm1(math.log1p(-confidence) / looked_at)
    low, high = differing / looked_at, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        # The probability of more differences than observed.
        if beta(middle, differing + 1, looked_at - differing) < confidence:
            low = middle
        else:
            high = middle
    return high


def beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b).

    Source: NIST Digital Library of Mathematical Functions, 8.17.22, evaluated by Lentz's method,
    and 8.17.4 for x above the mean.
    """
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a if x > 0 else 0.0
    c, d, value = 1.0, 0.0, 1.0
    for term in range(MAX_TERMS):
        m, odd = divmod(term, 2)
        if term == 0:
            factor = 1.0
        elif odd:
            factor = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            factor = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + factor * d or TINY)
        c = 1 + factor / c or TINY
        value *= c * d
        if abs(1 - c * d) < PRECISION and term:
            break
    return front * (value - 1)
