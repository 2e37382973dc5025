"""Algorithm 2 for networks: equal to a loop over the printed lines with the same noise."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dpadapt import Adjacency, Public  # noqa: E402
from dpadapt.papers.adaptation.ncnvx import ncnvx_network  # noqa: E402


def made_up(seed=0):
    rng = np.random.default_rng(seed)
    X, X_public = rng.standard_normal((60, 3)), rng.standard_normal((40, 3))
    return X, (X[:, 0] > 0).astype(int), X_public, (X_public[:, 0] + X_public[:, 1] > 0).astype(int)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
def test_steps_are_those_of_algorithm_2_with_weights_at_their_reference(make_tape, alpha):
    X, y, X_public, y_public = made_up()
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.3, -0.2, 0.1], [0.0, 0.4, -0.5]]))
        module.bias.zero_()
    model = ncnvx_network(
        module, 8.0, 1e-5, alpha=alpha, n_steps=12, learning_rate=0.7, clip_norm=0.8, average=0.0, random_state=3
    )
    tape = make_tape(noiseless=False, adjacency=Adjacency.REPLACE_ONE)
    model.fit(X, y, public=Public(X_public, y_public), ledger=tape.ledger)
    noises = tape.noises
    assert [noise.shape for noise in noises] == [(8,)] * 12
    # The public rows that were not held out, in the estimator's own split.
    generator = np.random.default_rng(3)
    from dpadapt.networks.estimator import _torch_seed

    with _torch_seed(generator):
        training = generator.permutation(40)[6:]
    W, b = np.array([[0.3, -0.2, 0.1], [0.0, 0.4, -0.5]]), np.zeros(2)

    def gradients(rows, codes):
        scores = rows @ W.T + b
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        error = p - np.eye(2)[codes]
        return np.concatenate([(error[:, :, None] * rows[:, None, :]).reshape(len(rows), -1), error], axis=1)

    for step, noise in enumerate(noises):
        private = gradients(X, y)
        private /= np.maximum(1.0, np.linalg.norm(private, axis=1, keepdims=True) / 0.8)
        # p for each target row is (1 - alpha) / n; the first step is on the target alone.
        share = 1.0 if step == 0 else 1 - alpha
        slope = share * (private.sum(axis=0) + noise) / 60
        slope += (1 - share) * gradients(X_public[training], y_public[training]).mean(axis=0)
        W, b = W - 0.7 * slope[:6].reshape(2, 3), b - 0.7 * slope[6:]
    assert model.module_.weight.detach().numpy() == pytest.approx(W, abs=1e-4)
    assert model.module_.bias.detach().numpy() == pytest.approx(b, abs=1e-4)
    assert model.privacy_.epsilon <= 8.0


def test_source_helps_a_small_target_through_a_hidden_layer():
    rng = np.random.default_rng(5)
    X, X_public, X_test = (rng.uniform(-1, 1, (n, 2)) for n in (200, 2000, 2000))
    labels = [(rows[:, 0] * rows[:, 1] > 0).astype(int) for rows in (X, X_public, X_test)]
    scores = [
        ncnvx_network(epsilon=1.0, alpha=alpha, n_steps=150, random_state=0)
        .fit(X, labels[0], public=Public(X_public, labels[1]))
        .score(X_test, labels[2])
        for alpha in (0.0, 0.9)
    ]
    assert scores[1] > 0.85 > scores[0]


def test_the_source_alone_is_refused():
    with pytest.raises(ValueError, match="alpha must be below 1"):
        ncnvx_network(alpha=1.0)
