"""Layers and losses to start from. No layer mixes the rows of a batch."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from dpadapt import checks


def perceptron(n_features: int, n_outputs: int, *, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Return fully connected layers of `hidden` units, with tanh between them, on flattened rows.

    Examples
    --------
    >>> sum(weights.numel() for weights in perceptron(196, 10).parameters())
    13258
    """
    sizes = [checks.count(size, "n_features, n_outputs and hidden") for size in (n_features, *hidden, n_outputs)]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class LSTMLayer(nn.Module):  # type: ignore[misc]
    """A long short-term memory layer made of two fully connected layers, so that per-row gradients can be clipped."""

    def __init__(self, n_inputs: int, n_units: int) -> None:
        super().__init__()
        self.n_units = n_units
        self.from_input = nn.Linear(n_inputs, 4 * n_units)
        self.from_state = nn.Linear(n_units, 4 * n_units, bias=False)
        for weights in self.parameters():
            nn.init.uniform_(weights, -1 / math.sqrt(n_units), 1 / math.sqrt(n_units))

    def forward(self, sequence: Any) -> Any:
        """Return the state after each step: (n_rows, n_steps, n_inputs) to (n_rows, n_steps, n_units)."""
        state = memory = sequence.new_zeros(sequence.shape[0], self.n_units)
        states = []
        for from_input in self.from_input(sequence).unbind(1):
            input_gate, forget_gate, update, output_gate = (from_input + self.from_state(state)).chunk(4, dim=1)
            memory = torch.sigmoid(forget_gate) * memory + torch.sigmoid(input_gate) * torch.tanh(update)
            state = torch.sigmoid(output_gate) * torch.tanh(memory)
            states.append(state)
        return torch.stack(states, dim=1)


def sequence_loss(scores: Any, targets: Any) -> Any:
    """Return the mean cross-entropy of each row over positions: scores (B, T, words), targets (B, T), losses (B,)."""
    return nn.functional.cross_entropy(scores.transpose(1, 2), targets, reduction="none").mean(dim=1)


def squared_loss(outputs: Any, targets: Any) -> Any:
    """Return the squared error of each row, summed over its outputs: for regression."""
    return (outputs.flatten(1) - targets.reshape(len(targets), -1)).square().sum(dim=1)
