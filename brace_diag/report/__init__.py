"""One self-contained HTML page of everything that a log tells, verdict first.

`brace_diag.report.render.render_report` makes it from `Findings`; importing this package loads
neither jinja2 nor matplotlib.
"""
