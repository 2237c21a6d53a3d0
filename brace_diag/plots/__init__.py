"""Results as figures: one figure per question, drawn from results alone.

`gap_figure` and `keyed_figure` return a matplotlib `Figure` that no global state knows of;
`save_figure` writes it as PNG, SVG or PDF. `gap_data` and `keyed_data` are the arrays they draw.
"""

from brace_diag.plots.comparison import comparison_figure
from brace_diag.plots.critic import calibration_figure, target_figure
from brace_diag.plots.critic_data import calibration_data, target_data
from brace_diag.plots.gap import gap_figure
from brace_diag.plots.gap_data import GapData, gap_data, y_limits
from brace_diag.plots.keyed import keyed_figure
from brace_diag.plots.keyed_data import KeyedData, keyed_data
from brace_diag.plots.products import products_figure
from brace_diag.plots.products_data import (
    PlaceData,
    ProductsData,
    TailsData,
    place_data,
    products_data,
    tails_data,
)
from brace_diag.plots.save import save_figure, svg_text
from brace_diag.plots.slopes import slope_figure
from brace_diag.plots.slopes_data import SlopesData, slopes_data
from brace_diag.plots.style import DOUBLE_COLUMN, SINGLE_COLUMN
from brace_diag.plots.sweep import sweep_figure
from brace_diag.plots.sweep_data import SweepData, sweep_data
from brace_diag.plots.tails import tails_figure
from brace_diag.plots.tails_by_position import place_figure
from brace_diag.plots.trend import trend_figure
from brace_diag.plots.trend_data import trend_data

__all__ = [
    "DOUBLE_COLUMN",
    "SINGLE_COLUMN",
    "GapData",
    "KeyedData",
    "PlaceData",
    "ProductsData",
    "SlopesData",
    "SweepData",
    "TailsData",
    "calibration_data",
    "calibration_figure",
    "comparison_figure",
    "gap_data",
    "gap_figure",
    "keyed_data",
    "keyed_figure",
    "place_data",
    "place_figure",
    "products_data",
    "products_figure",
    "save_figure",
    "slope_figure",
    "slopes_data",
    "svg_text",
    "sweep_data",
    "sweep_figure",
    "tails_data",
    "tails_figure",
    "target_data",
    "target_figure",
    "trend_data",
    "trend_figure",
    "y_limits",
]
