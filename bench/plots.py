"""The plots of the page, as small SVG files that come out the same for the same figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench.figure import Run
from bench.measure import quantile

LATENCY, LENGTH, RATE, FOLLOWING = (
    "append-latency.svg",
    "append-by-length.svg",
    "rate-by-sessions.svg",
    "following.svg",
)


def draw(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update(
        {"svg.hashsalt": "perdure", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    _distributions(run, [n for n in run.latencies if "follower" not in n], "one append, ms", folder / LATENCY)
    _distributions(
        run, [n for n in run.latencies if "follower" in n], "append to follower, ms", folder / FOLLOWING
    )
    _lengths(run, folder / LENGTH)
    _rates(run, folder / RATE)


def _distributions(run: Run, names: list[str], what: str, path: Path) -> None:
    axes = _axes()
    for name in names:
        ordered = sorted(run.latencies[name])
        at = [n / 500 for n in range(500)]
        axes.plot([quantile(ordered, q) * 1e3 for q in at], [q * 100 for q in at], label=name, linewidth=1.4)
    axes.set_xscale("log")
    axes.set_xlabel(what)
    axes.set_ylabel("as fast or faster, %")
    _save(axes, path)


def _lengths(run: Run, path: Path) -> None:
    axes = _axes()
    for name, points in run.by_length.items():
        axes.plot([x for x, _ in points], [y * 1e6 for _, y in points], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("events in the session")
    axes.set_ylabel("append p50, unsynced, µs")
    _save(axes, path)


def _rates(run: Run, path: Path) -> None:
    axes = _axes()
    for name, points in run.rates.items():
        style = "--" if "bare" in name else "-"
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            style,
            marker=None if "bare" in name else "o",
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sessions at once")
    axes.set_ylabel("synced appends a second")
    _save(axes, path)


def _axes() -> Axes:
    _, axes = plt.subplots(figsize=(6.4, 3.4))
    axes.grid(visible=True, alpha=0.3)
    return axes


def _save(axes: Axes, path: Path) -> None:
    if axes.lines:
        axes.legend(frameon=False, fontsize=8)
    axes.figure.savefig(path, bbox_inches="tight", metadata={"Date": None, "Creator": None})  # type: ignore[union-attr]
    plt.close()
    # Trailing blanks and no newline at the end are matplotlib's taste, not ours.
    lines = (line.rstrip() for line in path.read_text("utf-8").splitlines())
    path.write_text("\n".join(lines) + "\n", "utf-8")
