"""The report's HTML: its style, sections and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from detector.core.times import write_time

STYLE = """
:root{color-scheme:light}body{font:15px/1.5 system-ui,sans-serif;color:#1d2733;background:#f6f8fa;margin:0}
main{max-width:980px;margin:0 auto;padding:32px 24px 64px}h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:0 0 4px}
section{background:#fff;border:1px solid #e4e9ee;border-radius:8px;padding:18px 22px;margin:18px 0}
p{margin:4px 0 10px;max-width:75ch}.lead{color:#516070}.none{color:#8a97a5;font-style:italic}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0 0}.tile{flex:1 1 88px;background:#fff;border:1px solid #e4e9ee;
border-radius:8px;padding:10px 14px}.tile b{display:block;font-size:20px;white-space:nowrap}
.tile span{color:#516070}.bad b{color:#c62839}
.warn b{color:#d98a00}table{border-collapse:collapse;width:100%;font-size:13px}th{text-align:left;color:#516070;font-weight:600}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid #e4e9ee;vertical-align:top}td.n,th.n{text-align:right}code{font-size:12px}
.t{white-space:nowrap}.wide{overflow-x:auto}.wide svg{display:block;margin:0 auto}.wide table{min-width:560px}
@media(max-width:600px){main{padding:16px 10px 40px}section{padding:14px 12px}h1{font-size:20px;overflow-wrap:anywhere}}
"""


def page(title: str, body: str) -> str:
    """The whole file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def section(title: str, lead: str, body: str) -> str:
    """A part of the page: ``title`` and ``lead`` are text, ``body`` is HTML."""
    return f'<section><h2>{escape(title)}</h2><p class="lead">{escape(lead)}</p>{body}</section>'


def moment(seconds: float) -> str:
    """To the minute, on one line."""
    return unbroken(write_time(round(seconds))[:16].replace("T", " "))


def unbroken(text: str) -> str:
    """On one line."""
    return f'<span class="t">{escape(text)}</span>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> str:
    """``rows`` are HTML already."""
    if not rows:
        return f'<p class="none">{escape(none)}</p>'
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
