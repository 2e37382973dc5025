"""The verdict on a fit: use it, use the public model, or spend more. Made from releases and public facts alone."""

from collections.abc import Mapping
from typing import Any

from dpadapt.report.contributions import tested_error

# Smallest shift, as a share of the public model's mean squared error, whose absence is worth a verdict: if the gate
# would have opened at a smaller one, private rows that changed nothing say that the public model is right. Chosen by
# hand.
_SMALL_SHIFT = 0.1


def verdict_on_fit(model: Any, forecast: Mapping[str, Any] | None, n_private: int | None) -> dict[str, str]:
    """Return the verdict: its `kind` ("go", "stay", "more" or "open"), a `title` and `words`.

    Parameters
    ----------
    model : fitted estimator
    forecast : mapping or None
        From `forecast_of_fit`.
    n_private : int or None
        The number of private rows, if it is public.

    Examples
    --------
    >>> from types import SimpleNamespace as Model
    >>> receipt = Model(epsilon=1.0, entries=(1,), seeded=False)
    >>> fitted = Model(privacy_=receipt, adopted_=0.8, estimated_gain_=(0.24, 0.17, 0.3))
    >>> verdict_on_fit(fitted, None, 600)["title"]
    'Use this model'
    """
    receipt, gain = model.privacy_, getattr(model, "estimated_gain_", None)
    rows = "The private rows" if n_private is None else f"The {n_private:,} private rows"
    if receipt.seeded:
        return _verdict("more", "Do not use this model", "Its noise came from a seed. Fit again without a seed.")
    usable: Any = getattr(model, "usable_share_", None)
    unreadable = usable is not None and usable[1] == 0.0
    if unreadable and hasattr(model, "people_asked_"):
        return _verdict(
            "more",
            "Do not use this model yet; compare how labels are written",
            f"{_unread(usable, 'labels of the people')}, so that nobody corrected or tested this model. Compare how "
            f"labels are written on people's devices and in the schema.",
        )
    if not receipt.entries:
        return _verdict(
            "more",
            "Use the public model; more rows or a larger budget are needed",
            f"The budget is too small for this number of private rows. Nothing was spent, and this model is the "
            f"public one{_what_would_pay(model, forecast)}",
        )
    if unreadable and getattr(model, "public_only", lambda: None)() is None:
        return _verdict(
            "more",
            "Do not use this model; compare how labels are written",
            f"{_unread(usable, 'private labels')}, and there are no public labels to learn from. Compare how labels "
            f"are written in the private table and in the schema.",
        )
    if unreadable:
        return _verdict(
            "more",
            "Use the public model; compare how labels are written",
            f"{_unread(usable, 'private labels')}, and this model is the public one. Compare how labels are written in "
            f"the private table and in the schema. If they are written alike, more rows or a larger budget are needed.",
        )
    if gain is None and getattr(model, "public_base_", None) is not None:
        return _verdict(
            "more",
            "Use this model; its gain is uncertain",
            f"The budget paid for a correction of the level, but not for a measurement of what it gains"
            f"{_what_would_pay(model, forecast)}",
        )
    tested = tested_error(model)
    if tested is not None:
        return _verdict(
            "open",
            "Compare this model's error with what you have",
            f"People whom no candidate had used estimate its error at {tested[0]:.3f}, with a standard deviation of at "
            f"most {tested[1]:.3f}. No public model with labels stands behind it to compare it with.",
        )
    if gain is None:
        return _verdict(
            "open",
            "Measure this model before you use it",
            "No public model with labels stands behind it, so nothing here says how good it is. dpadapt evaluate "
            "measures it on private rows at a small cost.",
        )
    value, low, high = gain
    if getattr(model, "adopted_", 0.0) == 0.0:
        return _unchanged(model, forecast, rows)
    classifies = hasattr(model, "classes_")
    source = "This is an estimate for the private population, made from the noisy releases themselves."
    if usable is not None and usable[2] < 1.0:
        source += (
            f" Only about {usable[0]:.0%} of the private labels could be read ({usable[1]:.0%} to {usable[2]:.0%})."
        )
    if low > 0:
        loss = f"log-loss by about {value:.3f} per row ({low:.3f} to {high:.3f}"
        share = f"mean squared error by about {value:.0%} ({low:.0%} to {min(high, 1.0):.0%}"
        words = f"{rows} lower the public model's {loss if classifies else share} with 90% confidence). {source}"
        return _verdict("go", "Use this model", words)
    unit, ending = ("log-loss", " per row") if classifies else ("mean squared error", "")
    numbers = (value, low, high if classifies else min(high, 1.0))
    about, least, most = (_more_or_less(number, classifies) for number in numbers)
    words = (
        f"{rows} changed the public model, but whether its {unit} became less can't be told yet: about {about}{ending} "
        f"({least} to {most} with 90% confidence). {source}"
    )
    return _verdict(
        "more",
        "Use this model; its gain is uncertain" if value > 0 else "Measure this model before you use it",
        f"{words} More rows or a larger budget would make it clearer{_what_would_pay(model, forecast)}",
    )


def _unread(usable: tuple[float, float, float], labels: str) -> str:
    """Return the beginning of a sentence: the released share is not more than its noise."""
    share, low, high = usable
    return f"About {share:.0%} of the {labels} could be read ({low:.0%} to {high:.0%}): not more than noise explains"


def _more_or_less(gain: float, classifies: bool) -> str:
    """Return a gain in words without a sign."""
    size = f"{abs(gain):.3f}" if classifies else f"{abs(gain):.0%}"
    return f"{size} {'less' if gain >= 0 else 'more'}"


def _unchanged(model: Any, forecast: Mapping[str, Any] | None, rows: str) -> dict[str, str]:
    """Return the verdict where nothing was adopted: was there nothing to see, or too much noise to see it?"""
    own = _point(model, forecast)
    seen = own is not None and own.get("opens_at") is not None and own["opens_at"] <= _SMALL_SHIFT
    if seen and own is not None:
        return _verdict(
            "stay",
            "Use the public model",
            f"{rows} gave no evidence against the public model, and this model is the public one. A difference that "
            f"costs more than about {own['opens_at']:.0%} of its mean squared error would probably have been seen.",
        )
    return _verdict(
        "more",
        "Use the public model; more rows or a larger budget would tell more",
        f"{rows} gave no evidence that exceeds the noise, and this model is the public one. A moderate difference "
        f"could have been missed{_what_would_pay(model, forecast)}",
    )


def _point(model: Any, forecast: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the forecast at the epsilon of the fit."""
    if forecast is None:
        return None
    return next((point for point in forecast["points"] if point["epsilon"] == model.epsilon), None)


def _what_would_pay(model: Any, forecast: Mapping[str, Any] | None) -> str:
    """Return the end of a sentence: the least larger budget at which a smaller difference would be seen."""
    own = _point(model, forecast)
    if own is None or forecast is None:
        return "."
    before = own.get("opens_at")
    for point in forecast["points"]:
        after = point.get("opens_at")
        if point["epsilon"] > own["epsilon"] and after is not None and (before is None or after < before):
            factor = point["epsilon"] / own["epsilon"]
            return (
                f": with {factor:.2g} times the epsilon, or about {factor:.2g} times the rows, a difference of "
                f"{after:.0%} of its mean squared error would be seen."
            )
    return "."


def _verdict(kind: str, title: str, words: str) -> dict[str, str]:
    return {"kind": kind, "title": title, "words": words}
