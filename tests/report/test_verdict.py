"""The verdict agrees with the numbers that it is made from."""

from types import SimpleNamespace as Model

import pytest

from dpadapt.report.verdict import verdict_on_fit


def fitted(gain, *, adopted=0.5, entries=(1,), seeded=False, base=None):
    receipt = Model(entries=entries, seeded=seeded)
    return Model(privacy_=receipt, estimated_gain_=gain, adopted_=adopted, epsilon=1.0, public_base_=base)


def points(*opens_at):
    return {"points": [{"epsilon": 10.0**k, "opens_at": value} for k, value in enumerate(opens_at)]}


@pytest.mark.parametrize(
    ("model", "forecast", "kind", "title"),
    [
        (fitted((0.24, 0.17, 0.3)), None, "go", "Use this model"),
        (fitted((0.02, -0.05, 0.09)), None, "more", "gain is uncertain"),
        (fitted((0.0, 0.0, 0.0), adopted=0.0), points(0.05, 0.01), "stay", "Use the public model"),
        (fitted((0.0, 0.0, 0.0), adopted=0.0), points(0.5, 0.1), "more", "would tell more"),
        (fitted((0.0, 0.0, 0.0), adopted=0.0, entries=()), points(None, 0.1), "more", "are needed"),
        (fitted(None, adopted=1.0), None, "open", "Measure this model"),
        (fitted(None, adopted=1.0, base=True), None, "more", "gain is uncertain"),
        (fitted((-0.16, -0.5, 0.18)), None, "more", "Measure this model"),
        (fitted((0.24, 0.17, 0.3), seeded=True), None, "more", "Do not use"),
    ],
)
def test_verdicts(model, forecast, kind, title):
    verdict = verdict_on_fit(model, forecast, 600)
    assert verdict["kind"] == kind
    assert title in verdict["title"]


NO_LABELS = (0.03, 0.0, 0.13)


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        ({"public_only": lambda: True}, "Use the public model; compare how labels are written"),
        ({"public_only": lambda: None}, "Do not use this model; compare how labels are written"),
        ({"people_asked_": {"labels": 200}}, "Do not use this model yet; compare how labels are written"),
    ],
)
def test_a_model_is_not_recommended_if_no_label_could_be_read(facts, title):
    model = fitted((0.24, 0.17, 0.3), adopted=0.0)
    vars(model).update(facts, usable_share_=NO_LABELS)
    verdict = verdict_on_fit(model, None, None)
    assert verdict["title"] == title
    assert "could be read (0% to 13%): not more than noise explains" in verdict["words"]


def test_the_share_of_readable_labels_stands_beside_the_gain_unless_it_may_be_all():
    model = fitted((0.24, 0.17, 0.3))
    model.usable_share_ = (0.5, 0.4, 0.6)
    assert "about 50% of the private labels could be read (40% to 60%)" in verdict_on_fit(model, None, 600)["words"]
    model.usable_share_ = (0.95, 0.88, 1.0)
    assert "could be read" not in verdict_on_fit(model, None, 600)["words"]


def test_the_words_have_the_numbers_and_what_would_pay():
    words = verdict_on_fit(fitted((0.24, 0.17, 0.3)), None, 600)["words"]
    assert "The 600 private rows lower the public model's mean squared error by about 24% (17% to 30%" in words
    assert "(50% to 100% with" in verdict_on_fit(fitted((0.77, 0.5, 1.04)), None, 600)["words"]
    words = verdict_on_fit(fitted((-0.16, -0.5, 0.18)), None, None)["words"]
    assert "can't be told yet: about 16% more (50% more to 18% less with 90% confidence)" in words
    assert "-" not in words.replace("log-loss", "")
    words = verdict_on_fit(fitted((0.0, 0.0, 0.0), adopted=0.0), points(0.5, 0.1), None)["words"]
    assert words.startswith("The private rows")
    assert "10 times the epsilon" in words
    assert "10%" in words
