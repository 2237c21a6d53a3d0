"""From findings to a page: pictures drawn, text escaped, everything inside one file."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from brace_diag._version import __version__
from brace_diag.number_words import number
from brace_diag.report.sections import Picture, Section, sections
from brace_diag.report.typography import breaks, math_markup, sentence_case
from brace_diag.report.words import data_sentence, with_ends
from brace_diag.results_audit import Audit
from brace_diag.results_report import Findings

if TYPE_CHECKING:
    from jinja2 import Template

MARKS = {"ok": "✓", "note": "i", "warn": "!", "fail": "✗"}
GLOSSARY = (
    ("μ, π", "the policy that wrote the log, and the current one that is being trained"),
    ("V", "the critic: its guess of the return from a token on"),
    ("V^μ, V^π", "the true mean return from a token on under each policy"),
    ("b", "the gap V^π − V^μ: what staleness does to the value; 0 is no harm"),
    ("s_A", "the spread of the return among responses to one prompt; the margin is a part of it"),
    ("w = π/μ", "the importance weight of a token; 1 where both policies agree"),
    ("v", "within-prompt variance of the log of the product of w: how stale the log is"),
    ("gate", "what v allows: good and fair to believe, direction for the sign only, refused"),
    ("k, ρ̄, c̄", "window and caps of the corrected target: its tokens, its residuals, its trace"),
)


def render_report(found: Findings) -> str:
    """One HTML page: verdict, checks, a section for each question, data, settings, words.

    Self-contained (inline SVG and style sheet, no script, no request), readable in light and dark,
    on a phone and on paper. The same findings give the same bytes.
    """
    listed = sections(found)
    return _template().render(
        version=__version__,
        style=_text("report.css"),
        source=found.audit.source,
        verdict=_verdict(found.audit),
        checks=[
            {"mark": MARKS[check.status], **check.to_dict()} for check in found.audit.checks
        ],
        sections=[_drawn(section) for section in listed],
        steps=[
            {"key": key, "verdict": own.verdict, "b": with_ends(own.b_hat, sign=True),
             "margin": number(own.margin)}
            for key, own in found.audit.by.items()
        ],
        data=_data(found),
        settings=[(name, value) for name, value in found.audit.settings.to_dict().items()],
        glossary=GLOSSARY,
    )  # fmt: skip


def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"math": math_markup, "sentence": sentence_case, "breaks": breaks}
    return environment.from_string(_text("report.html.j2"))


def _text(name: str) -> str:
    return (files("brace_diag.report") / name).read_text(encoding="utf-8")


def _verdict(audit: Audit) -> dict[str, Any]:
    own, b = audit.overall, audit.overall.b_hat
    numbers = None
    if b.value is not None and audit.verdict != "invalid":
        numbers = (
            f"b = {with_ends(b, sign=True)}, margin {number(own.margin)}, "
            f"{b.n_rollouts:,} rollouts, {b.n_clusters} clusters of prompts"
        )
    return {
        "name": audit.verdict,
        "sentence": audit.sentence,
        "reason": own.reason,
        "next": own.next,
        "advice": None if audit.recommendation is None else audit.recommendation.reason,
        "numbers": numbers,
    }


def _data(found: Findings) -> dict[str, Any]:
    quality = found.audit.quality
    b = found.audit.overall.b_hat
    return {
        "sentence": data_sentence(quality.n_rollouts, quality.n_tokens, b.n_clusters),
        "remarks": [f"{count:,} {meaning}" for _, count, meaning in quality.remarks()],
    }


def _drawn(section: Section) -> dict[str, Any]:
    """A section with its pictures as SVG, each at both widths."""
    pictures = [
        {"reading": picture.reading, "alt": section.answer, "svg": dict(_svg(section, i, picture))}
        for i, picture in enumerate(section.pictures)
    ]
    return {
        "id": section.id,
        "title": section.title,
        "question": section.question,
        "command": section.command,
        "answer": section.answer,
        "missing": section.missing,
        "pictures": pictures,
        "rows": section.rows,
        "notes": section.notes,
    }


def _svg(section: Section, i: int, picture: Picture) -> Iterator[tuple[str, Any]]:
    from markupsafe import Markup

    from brace_diag.plots import svg_text

    for name, size in (("wide", picture.wide), ("narrow", picture.narrow)):
        # Made by matplotlib of our own figures, whose texts it escapes: safe as markup.
        text = svg_text(picture.draw(size), f"{section.id}{i}{name[0]}")
        yield name, Markup(text)
