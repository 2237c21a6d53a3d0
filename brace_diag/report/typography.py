"""Plain sentences as markup: superscripts, Greek letters, true minus signs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

GREEK = {"pi": "π", "mu": "μ", "rho_bar": "ρ̄", "c_bar": "c̄"}
_INDEX = "π|μ|A|p|0"
_POWER = "π|μ|2"


def math_markup(text: str) -> Markup:
    """Text with `V^pi` as V with a raised π, `s_A` with a lowered A, `pi/mu` as π/μ, -1 as −1.

    Names with more letters around them (`pi_logprobs`, `rho_bar=1.2`) stay as they are typed.
    """
    from markupsafe import Markup, escape

    html = str(escape(text))
    html = re.sub(r"([A-Za-z])([_^])(pi|mu)(?![A-Za-z_])", _greek_index, html)
    html = re.sub(r"(?<![\w/.])(pi|mu)(?![\w.=])", lambda m: GREEK[m.group(1)], html)
    html = re.sub(r"(?<=π/)mu\b", "μ", html)
    html = re.sub(rf"(?<![A-Za-z_])([A-Za-z])_({_INDEX})(?![A-Za-z_])", r"\1<sub>\2</sub>", html)
    html = re.sub(rf"([A-Za-z]|</sub>)\^({_POWER})(?![A-Za-z_])", r"\1<sup>\2</sup>", html)
    html = re.sub(r"(?<![\w.-])-(?=\.?\d)|(?<=[\w)>] )-(?= \d)", "−", html)
    return Markup(html)  # escaped above; what is added is ours


def _greek_index(match: re.Match[str]) -> str:
    return f"{match.group(1)}{match.group(2)}{GREEK[match.group(3)]}"


def sentence_case(text: str) -> str:
    """Words that begin a sentence; a symbol such as b keeps its case."""
    first = text.split(" ", 1)[0]
    return text if len(first) == 1 or first in GREEK else text[:1].upper() + text[1:]


def breaks(name: str) -> Markup:
    """A name that may be broken after its underscores and commas."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([_,:])", r"\1<wbr>", str(escape(name))))
