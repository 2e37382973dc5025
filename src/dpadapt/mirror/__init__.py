"""Paper 2: public data as the mirror map, for linear models, with its baselines and bounds.

"Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

from dpadapt.mirror.bounds import empirical_risk_bound, noise_stability_bound, population_risk_bound
from dpadapt.mirror.classification import PDADPMDClassifier
from dpadapt.mirror.gradient_descent import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor
from dpadapt.mirror.mean import PDADPMDMean
from dpadapt.mirror.noise import paper_noise_multiplier
from dpadapt.mirror.regression import PDADPMDRegressor
from dpadapt.mirror.width import ellipsoid_width, gaussian_width

__all__ = [
    "PDADPMDClassifier",
    "PDADPMDMean",
    "PDADPMDRegressor",
    "PrivateGradientDescentClassifier",
    "PrivateGradientDescentRegressor",
    "ellipsoid_width",
    "empirical_risk_bound",
    "gaussian_width",
    "noise_stability_bound",
    "paper_noise_multiplier",
    "population_risk_bound",
]
