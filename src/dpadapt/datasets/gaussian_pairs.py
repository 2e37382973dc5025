"""Pairs of Gaussian populations that differ in the spread of a few coordinates: Appendices C and D of paper 3.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022. The curator's population has
the same spread in all coordinates; in the target population k of them, which also decide the label, are closer to 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt._validate import count, positive, unit

Array = NDArray[np.float64]
Rows = NDArray[np.float64] | NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class GaussianPair:
    """Two Gaussian populations and the rule that labels both.

    Parameters
    ----------
    n_features : int
    n_close : int
        How many coordinates are closer to 0 in the target population; they alone decide the label.
    scale, close_scale : float
        Standard deviation of all coordinates at the curator's, and of the close ones in the target population.
    share : float
        Share of the target population with label 0.
    shape : {"ball", "half-space"}
        Label 0 means inside a ball around the origin (Appendix D), or below a hyperplane (Appendix C).
    spread : float, default=1.0
        The largest weight over the smallest, of the close coordinates' squares: above 1 the ball is an ellipsoid.

    Examples
    --------
    >>> X, y = APPENDIX_D_EASY.target(20_000, seed=0)
    >>> round(float(np.mean(y == 0)), 1)
    0.4
    """

    n_features: int
    n_close: int
    scale: float
    close_scale: float
    share: float
    shape: str
    spread: float = 1.0

    @property
    def divergence(self) -> float:
        """The chi-squared divergence of the target from the curator's population."""
        ratio = (self.close_scale / self.scale) ** 2
        return float((1.0 / (ratio * (2.0 - ratio))) ** (self.n_close / 2)) - 1.0

    @property
    def radius(self) -> float:
        """The squared radius of the ball, or the threshold on the sum of the close coordinates."""
        from scipy.stats import chi2, norm

        if self.shape == "ball" and self.spread == 1.0:
            return float(self.close_scale**2 * chi2(self.n_close).ppf(self.share))
        if self.shape == "ball":
            drawn = np.random.default_rng(0).standard_normal((400_000, self.n_close))
            return float(self.close_scale**2 * np.quantile(np.square(drawn) @ self.weights, self.share))
        return float(self.close_scale * math.sqrt(self.n_close) * norm.ppf(self.share))

    @property
    def weights(self) -> Array:
        """The weights of the close coordinates' squares, in their order."""
        return np.geomspace(self.spread**-0.5, self.spread**0.5, self.n_close)

    def curator(self, n: int, *, seed: int, single: bool = False) -> tuple[Rows, Labels]:
        """Draw `n` rows of the curator's population, in float32 if `single`."""
        return self._draw(n, self.scale, np.random.default_rng([seed, 0]), self.close(seed=seed), single)

    def target(self, n: int, *, seed: int, single: bool = False) -> tuple[Rows, Labels]:
        """Draw `n` rows of the target population, in float32 if `single`."""
        return self._draw(n, self.close_scale, np.random.default_rng([seed, 1]), self.close(seed=seed), single)

    def close(self, *, seed: int) -> NDArray[np.int64]:
        """Return which coordinates are the close ones."""
        chosen = np.random.default_rng([seed, 2]).permutation(self.n_features)[: self.n_close]
        return np.sort(chosen)

    def _draw(
        self, n: int, close_scale: float, random: np.random.Generator, close: NDArray[np.int64], single: bool
    ) -> tuple[Rows, Labels]:
        X: Rows = random.standard_normal((count(n, "n"), self.n_features), dtype=np.float32 if single else np.float64)
        X *= positive(self.scale, "scale")
        X[:, close] *= positive(close_scale, "close_scale") / self.scale
        unit(self.share, "share")
        part = X[:, close]
        total = np.square(part) @ self.weights if self.shape == "ball" else part.sum(axis=1)
        return X, (total > self.radius).astype(np.int64)


APPENDIX_C = GaussianPair(500, 10, 1.0, 0.02, 0.01, "half-space")
APPENDIX_D_EASY = GaussianPair(8, 2, 0.1, 0.07, 0.4, "ball")
APPENDIX_D_HARD = GaussianPair(200, 6, 1.0, 0.4, 0.3, "ball")
