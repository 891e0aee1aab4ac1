"""Why a node was chosen, as text: the winner beside the runner-up, plugin by plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.basis.printable import one_line
from moorage.report.score_values import (
    Flip,
    NodeTotal,
    ScoreReport,
)
from moorage.report.style import WIDTH, cells, columns, item, text_width

#: How many flips of a kind are shown.
_FLIPS = 4


def score_lines(report: ScoreReport, nodes: Sequence[str], *, wide: bool) -> str:
    """Return the table of contributions, and what would flip the choice."""
    lines: list[str] = []
    if report.runner_up is not None:
        lines.append(_score_table(report, nodes, wide=wide))
        if wide and len(report.nodes) > 2:
            lines.append(_ranking(report, nodes))
    lines += [item(text) for text in _sentences(report, nodes, wide=wide)]
    return "\n".join(lines)


def _score_table(report: ScoreReport, nodes: Sequence[str], *, wide: bool) -> str:
    winner = report.nodes[0]
    rival = next(one for one in report.nodes if one.node == report.runner_up)
    names = [one_line(nodes[one.node]) for one in (winner, rival)]
    rows = [_score_row(winner, rival, at) for at in range(len(winner.shares))]
    if not wide:
        rows = _folded(winner, rival, rows)
    rows.append(["total", str(winner.total), str(rival.total), _signed(winner.total - rival.total)])
    text = _compared(names, rows)
    if max(map(len, text.split("\n"))) <= text_width():
        return text
    return f"  winner:    {names[0]}\n  runner-up: {names[1]}\n{_compared(['winner', 'runner-up'], rows)}"


def _compared(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = columns(["", *names, "difference"], rows, right=(1, 2, 3))
    return "\n".join(f"  {line}".rstrip() for line in text.split("\n"))


def _score_row(winner: NodeTotal, rival: NodeTotal, at: int) -> list[str]:
    share, other = winner.shares[at], rival.shares[at]
    name = f"{share.plugin} ×{share.weight}"  # noqa: RUF001
    return [name, str(share.contribution), str(other.contribution), _signed(share.contribution - other.contribution)]


def _folded(winner: NodeTotal, rival: NodeTotal, rows: Sequence[list[str]]) -> list[list[str]]:
    """Return one row for each plugin whose scores of the two nodes differ, and one for all other plugins."""
    pairs = list(zip(winner.shares, rival.shares, strict=True))
    same = [at for at, (a, b) in enumerate(pairs) if a.contribution == b.contribution]
    if len(same) < 2:
        return list(rows)
    kept = [row for at, row in enumerate(rows) if at not in same]
    amount = str(sum(pairs[at][0].contribution for at in same))
    others = f"{len(same)} other plugins" if kept else f"{len(same)} plugins"
    return [*kept, [others, amount, amount, "0"]]


def _signed(amount: int) -> str:
    return f"+{amount}" if amount > 0 else str(amount)


def _ranking(report: ScoreReport, nodes: Sequence[str]) -> str:
    header = ("RANK", "NODE", "TOTAL", "CONTRIBUTIONS")
    rows = [
        (
            str(one.rank).rjust(4), one_line(nodes[one.node]), str(one.total).rjust(5),
            " ".join(f"{share.plugin}={share.contribution}" for share in one.shares),
        )
        for one in report.nodes
    ]  # fmt: skip
    return cells([header, *rows], (4, 36, 12, WIDTH))


def _sentences(report: ScoreReport, nodes: Sequence[str], *, wide: bool) -> Iterator[str]:
    if report.refused:
        fit, refused = _are(report.feasible, "fits", "fit"), _are(report.refused, "is", "are")
        yield f"{report.feasible} of {report.feasible + report.refused} nodes {fit}; {report.refused} {refused} refused."
    if report.unscored:
        yield f"{report.unscored} feasible nodes were never scored: the search ended before it came to them."
    if len(report.tied) > 1:
        yield (
            f"Chosen from {len(report.tied)} equally scored nodes "
            f"({', '.join(nodes[at] for at in report.tied[:5])}{', …' if len(report.tied) > 5 else ''}): "
            "kube-scheduler draws at random, moorage by the seed."
        )
    by_target: dict[int | None, list[str]] = {}
    for flip in _shown(report.flips, wide=wide):
        by_target.setdefault(flip.to, []).append(flip.text)
    for to, texts in by_target.items():
        yield f"Moves to {nodes[to] if to is not None else 'another node'} with: {' · '.join(texts)}"
    without = next((flip.text + "." for flip in report.flips if flip.kind == "withoutNode"), "")
    if report.runner_up is not None and not any(flip.kind == "weight" for flip in report.flips):
        yield f"Weights: no weight in 1-100 changes the choice.  {without}".rstrip()
    elif without:
        yield without


def _are(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def _shown(flips: Sequence[Flip], *, wide: bool) -> Iterator[Flip]:
    """Yield the first few flips of each kind; all of them if ``wide``."""
    counts: dict[str, int] = {}
    for flip in flips:
        counts[flip.kind] = counts.get(flip.kind, 0) + 1
        if flip.kind != "withoutNode" and (wide or counts[flip.kind] <= (1 if flip.kind == "usage" else _FLIPS)):
            yield flip
