"""The ready encoders, where they are installed: offline, bounded, and independent of the other rows of a batch."""

import socket

import numpy as np
import pandas as pd
import pytest

from dpadapt.representation import load_encoder
from dpadapt.representation.encoders import ENCODERS, as_encoder, features_of, find_encoder, try_encoder
from dpadapt.representation.ready_encoders import WordLlamaEncoder, texts_of
from dpadapt.tables import Encoded, Schema, Table, encode_features

TEXTS = ["a fine book", "it broke after a day, and nobody helped", "", "good"]


def needs(name):
    ready = find_encoder(name)
    return pytest.mark.skipif(ready.missing is not None, reason=str(ready.missing))


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("an encoder tried to connect to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("name", [pytest.param(e.name, marks=needs(e.name)) for e in ENCODERS])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_ready_encoders_load_offline_and_treat_each_row_by_itself(name, no_network):
    ready = find_encoder(name)
    rows = TEXTS if ready.kind == "text" else np.random.default_rng(0).integers(0, 256, (4, 32, 32), dtype=np.uint8)
    encoder = as_encoder(name)
    try_encoder(encoder, rows)
    features = features_of(encoder, rows)
    assert features.shape == (4, ready.n_features)
    assert np.abs(features).max() <= ready.bound
    assert not np.allclose(features[0], features[1], atol=1e-3)
    # To the bit: what else is in a batch must not even change the rounding.
    assert np.array_equal(features_of(encoder, rows[2:3])[0], features[2])


@needs("efficientnet-lite0")
def test_image_files_have_the_features_of_their_pixels(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    for i, picture in enumerate(pixels):
        image.fromarray(picture).save(tmp_path / f"{i}.png")
    table = Table(pd.DataFrame({"photo": ["0.png", "1.png"]}), "a.csv", private=True, folder=tmp_path)
    features = encode_features(table, Schema("d", (Encoded("photo", "efficientnet-lite0"),)))
    assert np.allclose(features, load_encoder("efficientnet-lite0").transform(pixels) / 6, atol=1e-5)


@needs("wordllama")
def test_text_columns_go_through_the_declared_encoder():
    table = Table(pd.DataFrame({"review": TEXTS}), "a.csv", private=True)
    features = encode_features(table, Schema("d", (Encoded("review", "wordllama"),)))
    assert np.allclose(features, load_encoder("wordllama").transform(TEXTS))


@pytest.mark.parametrize(
    "cells",
    [
        ["a", None, 3],
        np.array([["a"], [np.nan], [3]], dtype=object),
        pd.Series(["a", np.nan, 3]),
        pd.DataFrame({"text": ["a", None, 3]}),
    ],
    ids=["list", "column", "series", "data frame"],
)
def test_cells_become_texts_and_missing_cells_become_empty(cells):
    assert texts_of(cells) == ["a", "", "3"]


def test_texts_must_be_a_single_column():
    with pytest.raises(ValueError, match="a single column, got 2 axes"):
        texts_of([["a", "b"]])


def test_encoding_no_texts_is_refused():
    with pytest.raises(ValueError, match="at least one text"):
        WordLlamaEncoder().transform([])
