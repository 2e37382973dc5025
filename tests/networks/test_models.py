"""Networks, those of paper 2 included: each row is treated by itself, and the LSTM layer is torch's LSTM."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from benchmarks.mirror.models import lstm_language_model  # noqa: E402
from dpadapt.networks import models  # noqa: E402


def test_the_lstm_layer_computes_what_torchs_lstm_computes():
    torch.manual_seed(0)
    layer, reference = models.LSTMLayer(3, 5), nn.LSTM(3, 5, batch_first=True)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(layer.from_input.weight)
        reference.weight_hh_l0.copy_(layer.from_state.weight)
        reference.bias_ih_l0.copy_(layer.from_input.bias)
        reference.bias_hh_l0.zero_()
        sequence = torch.randn(4, 6, 3)
        assert torch.allclose(layer(sequence), reference(sequence)[0], atol=1e-6)


def test_the_language_model_scores_the_next_word_at_each_position_from_earlier_words():
    torch.manual_seed(0)
    module = lstm_language_model(9, n_units=4, n_layers=2)
    words = torch.randint(9, (3, 6))
    changed = words.clone()
    changed[:, 4] = (words[:, 4] + 1) % 9
    with torch.no_grad():
        scores, others = module(words), module(changed)
    assert scores.shape == (3, 6, 9)
    assert torch.equal(scores[:, :4], others[:, :4])
    assert not torch.allclose(scores[:, 4:], others[:, 4:])


def test_losses_are_one_per_row():
    torch.manual_seed(0)
    scores, words = torch.randn(3, 6, 9), torch.randint(9, (3, 6))
    expected = [nn.functional.cross_entropy(scores[i], words[i]) for i in range(3)]
    assert torch.allclose(models.sequence_loss(scores, words), torch.stack(expected))
    outputs, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 5.0])
    assert models.squared_loss(outputs, targets).tolist() == [1.0, 4.0]
