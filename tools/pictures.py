"""Draw the pictures of docs/concepts as small SVG files: `python tools/pictures.py`.

Each has a white ground of its own, so that it can be read on light and on dark pages, and a description for screen
readers. The tests compare the files with what this script draws.
"""

import math
from pathlib import Path
from xml.sax.saxutils import escape

CONCEPTS = Path(__file__).parents[1] / "docs" / "concepts"

INK, GREY, GROUND = "#1d2226", "#5c656d", "#ffffff"
# Lines and fills of what is public, private, charged and released, as in docs/transfer.svg.
BLUE, ORANGE, BROWN, GREEN = (
    ("#1f5fa8", "#eaf1fa"),
    ("#c2571a", "#fdeee4"),
    ("#8a4b00", "#fff4df"),
    ("#1f7a5c", "#e9f5f0"),
)


def text(
    x: float, y: float, words: str, *, size: int = 14, color: str = INK, anchor: str = "middle", bold: bool = False
) -> str:
    """Return one line of text."""
    weight = ' font-weight="600"' if bold else ""
    style = f'font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, colors: tuple[str, str], *, radius: int = 8) -> str:
    """Return a rectangle with round corners."""
    line, fill = colors
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" fill="{fill}" stroke="{line}" '
        f'stroke-width="1.5"/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, *, color: str = GREY, width: float = 1.5, more: str = "") -> str:
    """Return a straight line; `more` holds further attributes."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}" stroke-width="{width:g}"{more}/>'


ARROW = ' marker-end="url(#tip)"'
DASHES = ' stroke-dasharray="4 4"'


def picture(width: int, height: int, title: str, words: str, parts: list[str]) -> str:
    """Return a whole SVG file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-labelledby="title words" font-family="ui-sans-serif, system-ui, sans-serif">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="words">{escape(words)}</desc>',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="12" fill="{GROUND}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def belief(prior: float, epsilon: float) -> float:
    """Return the most that somebody who was sure with probability `prior` can be sure afterwards, for delta near 0."""
    return 1 / (1 + (1 - prior) / prior * math.exp(-epsilon))


def draw_epsilon() -> str:
    """Draw how sure somebody can become, as a function of epsilon."""
    left, right, top, bottom, most = 70.0, 560.0, 40.0, 260.0, 6.0

    def place(epsilon: float, sure: float) -> tuple[float, float]:
        return left + (right - left) * epsilon / most, bottom - (bottom - top) * sure

    parts = [text(left, 24, "How sure can they be afterwards?", anchor="start", bold=True)]
    for sure in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = place(0, sure)
        parts += [
            line(left, y, right, y, color="#d9dde1", width=1),
            text(left - 10, y + 4, f"{sure:.0%}", size=12, color=GREY, anchor="end"),
        ]
    for epsilon in range(7):
        x, _ = place(epsilon, 0)
        parts.append(text(x, bottom + 20, str(epsilon), size=12, color=GREY))
    parts.append(text((left + right) / 2, bottom + 42, "epsilon", size=13, color=GREY))
    for prior, color, label_at in ((0.5, BLUE[0], 1.1), (0.1, GREEN[0], 2.4), (0.01, ORANGE[0], 4.5)):
        points = [place(k / 20, belief(prior, k / 20)) for k in range(int(20 * most) + 1)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        x, y = place(label_at, belief(prior, label_at))
        parts.append(text(x + 12, y + 16, f"was {prior:.0%} sure", size=13, color=color, anchor="start"))
    return picture(
        590,
        316,
        "How sure somebody can become about one person, for epsilon from 0 to 6",
        "Three curves rise with epsilon. Who was 50% sure can be at most 73% sure at epsilon 1 and 98% at 4. Who was "
        "10% sure: 24% and 86%. Who was 1% sure: 3% and 36%.",
        parts,
    )


def draw_gate() -> str:
    """Draw the three answers of the gate."""
    parts = []
    cases = (
        ("within the noise", 22, 0.0, "shut: the public model"),
        ("somewhat beyond", 62, 0.45, "part of the way"),
        ("far beyond", 118, 0.95, "nearly all of it"),
    )
    for number, (name, size, share, result) in enumerate(cases):
        x, floor = 110 + 220 * number, 200.0
        parts += [
            box(x - 85, floor - 40, 170, 40, ORANGE, radius=0),
            line(x - 95, floor, x + 95, floor, color=INK),
            line(x - 30, floor, x - 30, floor - size, color=GREY, width=2, more=ARROW),
            text(x, 34, name, bold=True),
            text(x, floor + 46, result, color=GREEN[0], bold=True),
        ]
        if share:
            parts.append(line(x + 35, floor, x + 35, floor - share * size, color=GREEN[0], width=8))
        else:
            parts.append(f'<circle cx="{x + 35}" cy="{floor:g}" r="5" fill="{GREEN[0]}"/>')
        parts += [
            text(x - 30, floor + 18, "released", size=11, color=GREY),
            text(x + 35, floor + 18, "adopted", size=11, color=GREEN[0]),
        ]
    parts.append(text(24, 156, "noise", size=11, color=ORANGE[0], anchor="start"))
    return picture(
        660,
        268,
        "The gate compares a correction with its noise",
        "Three cases. A released correction that is no larger than its noise: nothing is adopted, and the public model "
        "stays. One somewhat larger: a part is adopted. One far larger: nearly all of it is adopted.",
        parts,
    )


def draw_ledger() -> str:
    """Draw check, record, draw; and the cap that fills up."""
    steps = (
        ("a fit asks", "its whole plan", BLUE),
        ("check", "within the cap?", BROWN),
        ("record", "on disk, first", BROWN),
        ("draw noise", "only now", GREEN),
    )
    parts = []
    for number, (name, words, colors) in enumerate(steps):
        x = 20 + 165 * number
        parts += [box(x, 30, 125, 62, colors), text(x + 62, 57, name, bold=True), text(x + 62, 77, words, size=12)]
        if number:
            parts.append(line(x - 38, 61, x - 4, 61, more=ARROW))
    parts += [
        line(247, 94, 247, 126, more=ARROW),
        text(247, 144, "no: refused, nothing spent", size=12, color=BROWN[0]),
    ]
    parts += [text(20, 188, "the cap: everything that will ever be released", size=12, color=GREY, anchor="start")]
    parts.append(box(20, 198, 620, 34, ("#9aa3ab", "#f4f5f6")))
    start = 20.0
    for words, width in (("fit in May", 190), ("evaluate", 110), ("fit in July", 170)):
        parts += [box(start, 198, width, 34, BROWN, radius=0), text(start + width / 2, 220, words, size=12)]
        start += width
    parts.append(text((start + 640) / 2, 220, "left", size=12, color=GREY))
    return picture(
        660,
        252,
        "A ledger checks, records, and only then lets noise be drawn",
        "A fit asks for its whole plan. The ledger checks the cap and refuses what does not fit. It records the cost "
        "on disk, and only then noise is drawn. All uses of the data fill one cap.",
        parts,
    )


def draw_new_rows() -> str:
    """Draw who is in which month: other people each month, and people who return."""
    parts = []
    panels = (
        (
            "other people each month",
            {"Ann": (0,), "Ben": (0,), "Cleo": (1,), "Dan": (1,), "Eva": (2,), "Finn": (2,)},
            "a ledger per month is right",
        ),
        (
            "people return",
            {"Ann": (0, 1, 2), "Ben": (0,), "Cleo": (1, 2), "Dan": (1,), "Eva": (2,), "Finn": (0, 2)},
            "three ledgers: Ann's costs add up",
        ),
    )
    for panel, (title, people, verdict) in enumerate(panels):
        left = 30 + 330 * panel
        good = panel == 0
        parts.append(text(left + 150, 30, title, bold=True))
        for month, name in enumerate(("January", "February", "March")):
            x = left + 60 + 80 * month
            parts += [text(x + 35, 56, name, size=12, color=GREY), box(x, 64, 70, 178, ("#c6ccd2", "#f7f8f9"))]
        for row, (name, months) in enumerate(people.items()):
            y = 82 + 29 * row
            parts.append(text(left + 50, y + 4, name, size=12, anchor="end"))
            repeated = len(months) > 1
            ring, fill = ORANGE if repeated else BLUE
            if repeated:
                parts.append(
                    line(left + 95 + 80 * months[0], y, left + 95 + 80 * months[-1], y, color=ORANGE[0], width=2)
                )
            parts += [
                f'<circle cx="{left + 95 + 80 * month}" cy="{y}" r="8" fill="{fill}" stroke="{ring}" stroke-width="2"/>'
                for month in months
            ]
        parts.append(text(left + 150, 268, verdict, size=13, color=GREEN[0] if good else ORANGE[0], bold=True))
    return picture(
        690,
        288,
        "Who is in which month",
        "Left: each person has rows in one month only, so each month may have a ledger of its own. Right: some persons "
        "have rows in two or three months, so the costs of several ledgers add up for them.",
        parts,
    )


PICTURES = {
    "epsilon.svg": draw_epsilon,
    "gate.svg": draw_gate,
    "ledger.svg": draw_ledger,
    "new-rows.svg": draw_new_rows,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (CONCEPTS / name).write_text(draw(), encoding="utf-8")
        print(f"{name}: {len(draw()):,} characters")


if __name__ == "__main__":
    main()
