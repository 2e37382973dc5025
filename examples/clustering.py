"""First-aid stations: where to put new ones when paramedics on call, whose homes are secret, can already be sent.

A town has four quarters. Every home should be near a station or a paramedic. The homes are public; the addresses of the
paramedics and their number are secret. Both sets are synthetic, so that the true distances can be shown. With real
paramedics the true distances would have to be released like any other statistic.
"""

import numpy as np

from dpadapt import Adjacency, Ledger, Public
from dpadapt.clustering import PrivateSourceTargetClustering, cluster_t, non_private
from dpadapt.clustering.solver import nearest

rng = np.random.default_rng(1)
quarters = np.array([[1.0, 1.0], [4.0, 1.5], [1.5, 4.0], [4.5, 4.5]])  # kilometres
homes = np.vstack([rng.normal(middle, 0.6, (250, 2)) for middle in quarters])
# Paramedics live in two of the quarters.
paramedics = np.vstack([rng.normal(middle, 0.6, (150, 2)) for middle in quarters[:2]])


def distance(stations):
    """Return the mean distance of a home to its nearest station or paramedic."""
    return float(np.minimum(nearest(homes, homes[stations])[1], nearest(homes, paramedics)[1]).mean())


ledger = Ledger(epsilon=2.0, adjacency=Adjacency.ADD_REMOVE)  # all that may ever be released about the paramedics
model = PrivateSourceTargetClustering(n_clusters=12, epsilon=1.0, certificate_share=0.5)
model.fit(paramedics, public=Public(homes), ledger=ledger)

print("mean distance to help, in metres:")
print(f"  12 stations as if there were no paramedics  {1000 * distance(cluster_t(homes, 12)):.0f}")
print(f"  12 stations by the private method           {1000 * distance(model.centers_):.0f}")
print(f"  12 stations knowing every address           {1000 * distance(non_private(paramedics, homes, 12)):.0f}")
estimate, bound = 1000 * model.cost_estimate_, 1000 * model.cost_bound_
print(f"the private estimate is {estimate:.0f}, and with probability 95% the distance is at most {bound:.0f}")
near = nearest(homes[model.centers_], quarters)[0]
print("stations by quarter:", np.bincount(near, minlength=4).tolist(), "(paramedics live in the first two)")

# Without any paramedic the answer is that of the homes alone, with probability at least 0.999.
alone = PrivateSourceTargetClustering(n_clusters=12, epsilon=1.0).fit(
    np.empty((0, 2)), public=Public(homes), ledger=ledger
)
print(
    "without paramedics, the same stations as if there were none:",
    sorted(alone.centers_) == sorted(cluster_t(homes, 12)),
)
print(model.privacy_)
