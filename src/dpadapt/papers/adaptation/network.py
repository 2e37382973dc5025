"""Algorithm 2 of private domain adaptation for networks, as settings of `PrivateNetwork`. Needs the extra `torch`.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, Section 5: "this covers the familiar case where the logistic loss is applied to the output of neural networks".
"""

from typing import TYPE_CHECKING, Any

from dpadapt.papers.adaptation.problem import mixture_share

if TYPE_CHECKING:
    from dpadapt.networks import PrivateNetwork

# More rows than any data set has: every step takes all of them.
_FULL_BATCH = 2**50


def ncnvx_network(
    module: Any = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    alpha: float = 0.5,
    n_steps: int = 300,
    learning_rate: float = 1.0,
    clip_norm: float = 1.0,
    average: float = 0.97,
    classes: Any = None,
    adjacency: str = "replace-one",
    n_rows: int | None = None,
    random_state: int | None = None,
) -> "PrivateNetwork":
    """Return a `PrivateNetwork` that descends on alpha parts of the source's loss and 1 - alpha of the target's.

    Every step takes all private rows and all public rows. What is released, and what it costs, is what `PrivateNetwork`
    says.

    Parameters
    ----------
    alpha : float, default=0.5
        The public source's share of the reference weights, from 0 (target alone) to below 1.
    module, epsilon, delta, n_steps, learning_rate, clip_norm, average, classes, adjacency, n_rows, random_state
        As in `PrivateNetwork`.

    Notes
    -----
    Where this differs from the printed algorithm, and why:

    - The sample weights stay at their reference. The printed steps do not move them either (docs/papers/adaptation.md).
    - The paper assumes a Lipschitz loss. A network's gradients have no known bound, so every row's gradient is clipped.
    - The paper's step is one over the smoothness, which is not known either; `learning_rate` is given.
    - There is no ball of weights.
    - The first step is on the target alone.
    - A part of the public rows is held out for the temperature of the probabilities.
    """
    from dpadapt.networks import PrivateNetwork

    alpha = mixture_share(alpha)
    if alpha == 1:
        raise ValueError("alpha must be below 1: at 1 no private row is used.")
    return PrivateNetwork(
        module,
        epsilon,
        delta,
        # Eq. (1) of paper 2 with a constant weight: after the first step, 1 - alpha for the private gradient.
        transfer="mirror" if alpha else "cold",
        decay_steps=1,
        mixing_floor=(1 - alpha) if alpha else 0.0,
        public_steps=0,
        n_steps=n_steps,
        batch_size=_FULL_BATCH,
        public_batch_size=_FULL_BATCH,
        learning_rate=learning_rate,
        clip_norm=clip_norm,
        average=average,
        classes=classes,
        adjacency=adjacency,
        n_rows=n_rows,
        random_state=random_state,
    )
