"""Fits of libraries that need an environment of their own: diffprivlib and Opacus. It imports nothing of dpadapt.

    python outside.py DATA.npz PREDICTIONS.npz

`benchmarks.peers.run` starts it with the Python of that environment. Ranges, means and starts come from public rows.
Opacus fine-tunes the public linear model by DP-SGD; diffprivlib has no way to use public rows, and fits the private
ones alone. Predictions are numbers, or probabilities with a column per class.
"""

import sys
import warnings
from typing import Any

import numpy as np

# On two sets a clipping norm of 1 was much worse, because it biases gradients, and one of 10 was not better.
EPOCHS, BATCH, CLIP_NORM = 20, 256, 3.0
# Rates of Opacus' steps. The best of them on the test rows is reported: a choice that is not private.
RATES = (0.01, 0.03, 0.1, 0.3)


def main(data: str, out: str) -> None:
    """Fit everything on every seed's private rows, and predict its test rows."""
    warnings.simplefilter("ignore")
    given = dict(np.load(data))
    X_public, y_public, classes = given["X_public"], given["y_public"], given["classes"]
    spread = X_public.std(axis=0)
    center, spread = X_public.mean(axis=0), np.where(spread > 0, spread, 1.0)
    X_public, pool = (X_public - center) / spread, (given["X"] - center) / spread
    start = _public_start(X_public, y_public, classes)
    n_private = len(given["private 0"])
    found: dict[str, Any] = {}
    for epsilon in map(float, given["epsilons"]):
        noise = _noise(n_private, epsilon, float(given["delta"]))
        for seed in map(int, given["seeds"]):
            test, private = given[f"test {seed}"], given[f"private {seed}"]
            rows = pool[private], given["y"][private], pool[test]
            found[f"diffprivlib|{epsilon:g}|{seed}"] = _diffprivlib(X_public, y_public, classes, epsilon, seed, *rows)
            for rate in RATES:
                predicted = _opacus(start, y_public, classes, noise, rate, seed, *rows)
                found[f"Opacus, rate {rate:g}|{epsilon:g}|{seed}"] = predicted
    np.savez(out, **found)


def _diffprivlib(
    X_public: Any, y_public: Any, classes: Any, epsilon: float, seed: int, X: Any, y: Any, X_test: Any
) -> Any:
    from diffprivlib.models import LinearRegression, LogisticRegression

    if not len(classes):
        bounds, ends = (X_public.min(axis=0), X_public.max(axis=0)), (y_public.min(), y_public.max())
        model = LinearRegression(epsilon=epsilon, bounds_X=bounds, bounds_y=ends, random_state=seed)
        return model.fit(np.clip(X, *bounds), np.clip(y, *ends)).predict(X_test)
    # About the norm of a standardised row. The largest norm of public rows, tried on two sets, was worse.
    norm = np.sqrt(X.shape[1])
    model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=seed).fit(X, y)
    p = np.zeros((len(X_test), len(classes)))
    p[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X_test)
    # Of many classes, each has a model of its own. Where all say no, their normalised probabilities are not numbers.
    return np.where(np.isnan(p), 1 / len(classes), p)


def _public_start(X: Any, y: Any, classes: Any) -> Any:
    """Return coefficients and intercepts of the public linear model; labels of a regression are standardised."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if not len(classes):
        ridge = RidgeCV(np.logspace(-2, 5, 15)).fit(X, (y - y.mean()) / y.std())
        return ridge.coef_[None, :], np.array([ridge.intercept_])
    model = LogisticRegression(max_iter=2000).fit(X, y)
    if len(classes) > 2:
        return model.coef_, model.intercept_
    return np.vstack([-model.coef_ / 2, model.coef_ / 2]), np.concatenate([-model.intercept_, model.intercept_]) / 2


def _noise(n_rows: int, epsilon: float, delta: float) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    return float(
        get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=BATCH / n_rows, epochs=EPOCHS, accountant="prv"
        )
    )


def _opacus(
    start: Any, y_public: Any, classes: Any, noise: float, rate: float, seed: int, X: Any, y: Any, X_test: Any
) -> Any:
    """Return the predictions of the public linear model after `EPOCHS` of DP-SGD with batches of Poisson samples."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    coef, intercept = start
    model = torch.nn.Linear(X.shape[1], len(coef))
    with torch.no_grad():
        model.weight.copy_(torch.tensor(coef, dtype=torch.float32))
        model.bias.copy_(torch.tensor(intercept, dtype=torch.float32))
    if len(classes):
        labels, loss_of = torch.tensor(np.searchsorted(classes, y)), torch.nn.CrossEntropyLoss()
    else:
        scaled = ((y - y_public.mean()) / y_public.std())[:, None]
        labels, loss_of = torch.tensor(scaled, dtype=torch.float32), torch.nn.MSELoss()
    loader = DataLoader(TensorDataset(torch.tensor(X, dtype=torch.float32), labels), batch_size=BATCH)
    private, steps, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=CLIP_NORM,
    )
    for _ in range(EPOCHS):
        for rows, targets in loader:
            steps.zero_grad()
            loss_of(private(rows), targets).backward()
            steps.step()
    with torch.no_grad():
        scores = model(torch.tensor(X_test, dtype=torch.float32))
    if len(classes):
        return torch.softmax(scores, dim=1).numpy()
    return scores[:, 0].numpy() * y_public.std() + y_public.mean()


if __name__ == "__main__":
    main(*sys.argv[1:])
