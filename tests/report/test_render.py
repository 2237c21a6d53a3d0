"""The page of a report: whole in itself, escaped, the same every time, nothing left out."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from brace_diag import Findings, gather_findings, open_run, render_report
from brace_diag.report.sections import sections
from brace_diag.report.typography import breaks, math_markup, sentence_case
from brace_diag.tabular import LatentFamily, sample_log

LOG = Path(__file__).parents[1] / "data" / "async_run.parquet"
VOID = {"meta", "link", "br", "wbr"}


class Page(HTMLParser):
    """Tags, ids and links of a page; fails where tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        own = dict(attrs)
        if own.get("id"):
            self.ids.append(own["id"] or "")
        for name in ("href", "xlink:href"):
            if own.get(name):
                self.hrefs.append(own[name] or "")
        if own.get("src"):
            self.sources.append(own["src"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def without_markup(page: str) -> str:
    text = re.sub(r"<(style|svg|title)\b.*?</\1>", "", page, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


def test_the_page_is_whole_in_itself(page: str) -> None:
    parsed = Page(page)
    assert "script" not in parsed.tags and "img" not in parsed.tags
    assert parsed.sources == []
    outside = [h for h in parsed.hrefs if not h.startswith(("#", "data:image/png;base64,"))]
    assert outside == ["data:,", "https://arxiv.org/abs/2609.09783"]
    assert "url(http" not in page and "@import" not in page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    parsed = Page(page)
    assert len(set(parsed.ids)) == len(parsed.ids)
    for href in parsed.hrefs:
        if href.startswith("#"):
            assert href[1:] in parsed.ids
    for name in re.findall(r"url\(#([^)]+)\)", page):
        assert name in parsed.ids


def test_the_verdict_comes_first_with_its_reason(findings: Findings, page: str) -> None:
    text = without_markup(page)
    audit = findings.audit
    assert text.index(audit.verdict) < text.index("Contents") < text.index("Checks")
    sentence = without_markup(str(math_markup(audit.sentence)))
    assert text.index(sentence) < text.index("Contents")
    for check in audit.checks:
        assert without_markup(str(math_markup(check.message))) in text


def test_every_question_has_its_figures_at_both_widths(findings: Findings, page: str) -> None:
    listed = sections(findings)
    assert [s.id for s in listed] == [
        "gap", "trend", "staleness", "slope", "weights", "critic", "sweep"
    ]  # fmt: skip
    pictures = sum(len(s.pictures) for s in listed)
    assert pictures >= 8
    assert page.count("<svg") == 2 * pictures
    assert page.count("<b>Reading.</b>") == pictures
    text = without_markup(page)
    for own in listed:
        told = own.missing or own.answer
        assert without_markup(str(math_markup(told))) in text


def test_the_same_findings_give_the_same_bytes(findings: Findings, page: str) -> None:
    assert render_report(findings) == page


def test_what_a_log_calls_itself_is_text(findings: Findings) -> None:
    name = '<script>alert("x")</script> & $x$.parquet'
    hostile = replace(findings, audit=replace(findings.audit, source=name), gap=None, trend=None,
                      by_staleness=None, slope=None, weights=None, critic=None, sweep=None,
                      missing={"gap": f"{name}: <b>no</b> column"})  # fmt: skip
    page = render_report(hostile)
    assert "script" not in Page(page).tags
    assert "&lt;script&gt;" in page
    assert "This log cannot answer: &lt;b&gt;no&lt;/b&gt; column." in page


def test_a_log_without_pi_or_critic_says_what_it_cannot_answer(tmp_path: Path) -> None:
    table = pq.read_table(LOG)
    path = tmp_path / "bare.parquet"
    pq.write_table(table.drop_columns(["pi_logprobs", "values"]), path)
    found = gather_findings(open_run(path))
    assert found.audit.verdict == "invalid"
    assert set(found.missing) >= {"gap", "slope", "weights", "critic", "sweep"}
    assert found.trend is not None  # the return by step is told all the same
    text = without_markup(render_report(found))
    assert text.count("This log cannot answer: no column") >= 5


def test_settings_stand_in_the_verdict_that_needs_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(17)
    mdp = LatentFamily(n_prompts=128, horizon=128, drift=0.04, alignment=0.8).build(rng)
    path = tmp_path / "stale.parquet"
    pq.write_table(sample_log(mdp, 64, 8, rng, pool=True).to_table(), path)
    seen: list[tuple[int, int | None]] = []
    found = gather_findings(open_run(path), progress=lambda done, total: seen.append((done, total)))
    assert found.audit.verdict == "needs_correction"
    assert found.audit.recommendation is not None
    assert found.sweep is not None
    assert found.audit.recommendation == found.sweep.recommendation
    assert found.trend is None and "needs two trainer steps" in found.missing["trend"]
    assert found.audit.recommendation.label in without_markup(render_report(found))
    assert seen == sorted(seen) and all(done <= (total or 0) for done, total in seen)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("gap V^pi - V^mu at 0", "gap V<sup>π</sup> - V<sup>μ</sup> at 0"),
        ("E_mu[R] and E_π[R]", "E<sub>μ</sub>[R] and E<sub>π</sub>[R]"),
        ("margin 0.1 s_A", "margin 0.1 s<sub>A</sub>"),
        ("mean pi/mu is 1; pi equals mu", "mean π/μ is 1; π equals μ"),
        ("sum of pi/mu - 1 is -0.5", "sum of π/μ − 1 is −0.5"),
        ("E_p[b_p^2] < d", "E<sub>p</sub>[b<sub>p</sub><sup>2</sup>] &lt; d"),
        ("no column pi_logprobs or mu_logprobs", "no column pi_logprobs or mu_logprobs"),
        ("brace:k=64,rho_bar=2,c_bar=1", "brace:k=64,rho_bar=2,c_bar=1"),
        ("2026-12-07, a-1, x/pi.parquet", "2026-12-07, a-1, x/pi.parquet"),
    ],
)
def test_sentences_are_set_in_type(text: str, html: str) -> None:
    assert str(math_markup(text)) == html


def test_sentences_begin_with_a_capital_and_names_break() -> None:
    assert sentence_case("the gap") == "The gap"
    assert sentence_case("b lies") == "b lies"
    assert sentence_case("pi earns") == "pi earns"
    assert str(breaks("explained_variance")) == "explained_<wbr>variance"
    assert str(breaks("<x_y>")) == "&lt;x_<wbr>y&gt;"
