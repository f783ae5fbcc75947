"""The parts of a page. Text is escaped unless it is ``Html`` already, so nothing from a file can become markup."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from hushpoint._version import __version__

_SHOWN = 40  # rows of a long table that are not folded away
_SPARED = 3  # so few more are not worth a fold
# The browser itself refuses scripts and the network, whatever the page may hold.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #565d66; --paper: #ffffff; --panel: #f4f6f8; --line: #d5dae0;
  --accent: #0060a0; --warn: #8a3d00; --warn-paper: #fff3e6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a6adb7; --paper: #15181c; --panel: #1f242a;
  --line: #3a424c; --accent: #7cc0f5; --warn: #ffbf80; --warn-paper: #33230f; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, footer { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 2.2rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
.lead { color: var(--soft); margin-top: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: 1rem 0 0; }
a { color: var(--accent); }
blockquote { margin: 1rem 0; padding: .6rem 1rem; background: var(--panel); border-left: 4px solid var(--accent); }
blockquote p { margin: .2rem 0; }
.warning { background: var(--warn-paper); border: 1px solid var(--warn); color: var(--ink); border-radius: 6px;
  padding: .6rem 1rem; margin: 1rem 0; max-width: 46rem; }
.warning strong { color: var(--warn); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .7rem 1rem;
  overflow-x: auto; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .9em; }
p code, td code { overflow-wrap: anywhere; }
figure { margin: 1.2rem 0 1.8rem; }
figure img { display: block; width: 100%; max-width: 52rem; height: auto; margin: 0 auto; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .5rem; max-width: 46rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; max-width: calc(100vw - 2.6rem); }
details caption { max-width: calc(100vw - 4.8rem); }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); white-space: nowrap; }
tbody th { font-weight: 600; min-width: 8rem; }
tbody th.number { min-width: 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.long { min-width: 14rem; overflow-wrap: anywhere; }
td.short { white-space: nowrap; }
td.bar { white-space: nowrap; }
td.bar span { display: inline-block; min-width: 4.6rem; text-align: right; vertical-align: top; }
td.bar svg { display: inline-block; width: 9rem; height: 1.1rem; margin: .15rem 0 0 .9rem; vertical-align: top; }
td small { display: block; color: var(--soft); }
details { margin: .8rem 0; border: 1px solid var(--line); border-radius: 6px; padding: .4rem 1rem; }
summary { cursor: pointer; font-weight: 600; padding: .2rem 0; }
footer { color: var(--soft); font-size: .88rem; margin-top: 3rem; padding-bottom: 2rem; }
@media (max-width: 34rem) { main, footer { padding: 0 .9rem; } h1 { font-size: 1.5rem; }
  th, td { padding: .3rem .45rem; } tbody th { min-width: 5rem; } td.long { min-width: 10rem; }
  tr:has(td.bar) th { min-width: 9rem; overflow-wrap: anywhere; }
  td.bar span { text-align: left; } td.bar svg { display: block; width: 6.5rem; margin-left: 0; }
  figure img { padding: .1rem; } }
@media print { :root { color-scheme: light; --ink: #000000; --soft: #333333; --paper: #ffffff; --panel: #ffffff;
  --line: #999999; --accent: #000000; --warn: #000000; --warn-paper: #ffffff; }
  body { font-size: 10pt; } main, footer { max-width: none; padding: 0; } nav { display: none; }
  h2, h3 { break-after: avoid; } figure, tr, blockquote { break-inside: avoid; } .scroll { overflow: visible; }
  thead { display: table-header-group; } }
"""


class Html(str):
    """Markup; any other text is escaped when it is put on a page."""

    __slots__ = ()


def escaped(text: Any) -> Html:
    """Text as a page may hold it."""
    if isinstance(text, Html):
        return text
    plain = str(text).encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair cannot be written
    return Html(html.escape(plain, quote=True))


def element(name: str, *children: Any, **attributes: Any) -> Html:
    """One element; attribute names may end in an underscore, and hyphens are written as underscores."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items() if value != ""
    )
    return Html(f"<{name}{given}>{''.join(map(escaped, children))}</{name}>")


def joined(parts: Iterable[Any]) -> Html:
    """Parts one after the other."""
    return Html("\n".join(map(escaped, parts)))


def warning(strong: str, text: str) -> Html:
    """Something that a reader must not miss."""
    return element("p", element("strong", strong), " ", text, class_="warning", role="note")


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]], *, named: bool = True) -> Html:
    """An accessible table. Numbers are set right; with ``named`` the first cell of a row is its heading."""
    lines = [list(row) for row in rows]
    filled = [[line[k] for line in lines if line[k] != ""] for k in range(len(header))]
    kinds = ["number" if cells and all(map(_numeric, cells)) else "" for cells in filled]
    head = element(
        "tr", *(element("th", title, scope="col", class_=kind) for title, kind in zip(header, kinds, strict=True))
    )
    body = []
    for line in lines:
        cells = [
            element("th", cell, scope="row", class_=kind)
            if named and k == 0
            else element("td", _spread(cell), class_=kind or _width(cell))
            for k, (cell, kind) in enumerate(zip(map(_cell, line), kinds, strict=True))
        ]
        body.append(element("tr", *cells))
    grid = element("table", element("caption", caption), element("thead", head), element("tbody", joined(body)))
    return element("div", grid, class_="scroll", role="region", tabindex=0, aria_label=caption)


def long_table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    rest: str,
    title: str,
    foot: Sequence[Any] = (),
    shown: int = _SHOWN,
) -> list[Html]:
    """A table of the first rows; under a title with their number, the rest is folded away."""
    shown = len(rows) if len(rows) <= shown + _SPARED else shown
    parts = [table(caption, header, [*rows[:shown], *foot])]
    if len(rows) > shown:
        parts.append(folded(title.format(len(rows) - shown), table(rest, header, rows[shown:])))
    return parts


def figure(kind: str, content: bytes, alternative: str, caption: str) -> Html:
    """A picture inside the page; as an image it can hold no script that runs."""
    source = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return element("figure", Html(f'<img src="{source}" alt="{escaped(alternative)}">'), element("figcaption", caption))


def folded(title: str, *children: Any) -> Html:
    """A part that a reader opens."""
    return element("details", element("summary", title), *children)


def commands(*lines: str) -> Html:
    """What to type."""
    return element("pre", element("code", "\n".join(lines)), tabindex=0)


def number(value: Any) -> str:
    """A number with four digits, text as it is, nothing for what is missing."""
    if value is None or value == "":
        return ""
    if isinstance(value, int):
        return str(value)
    try:
        known = float(value)
    except (TypeError, ValueError):
        return str(value)
    if isinstance(value, str) and value.lstrip("-").isdigit():
        return value
    return "infinite" if known == math.inf else "" if math.isnan(known) else f"{known:.4g}"


def document(title: str, lead: str, parts: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """The whole page: titled parts, with links to them at the top."""
    links, sections = [], []
    for name, content in parts:
        anchor = "".join(letter if letter.isalnum() else "-" for letter in name.lower())
        links.append(element("li", element("a", name, href=f"#{anchor}")))
        sections.append(element("section", element("h2", name, id=anchor), *content, aria_labelledby=anchor))
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escaped(title)}</h1>\n{element('p', lead, class_='lead')}\n"
        f"{element('nav', element('ul', *links), aria_label='Contents')}\n"
        f"{joined(sections)}\n</main>\n"
        f"{element('footer', element('p', f'Written by Hushpoint {__version__}. This page needs no network.'))}\n"
        "</body>\n</html>\n"
    )


def _width(cell: str) -> str:
    """How a cell that is no number may break: a picture keeps its size, a word stays whole, a sentence has room."""
    return "bar" if isinstance(cell, Html) else "short" if len(cell) < 16 else "long" if len(cell) > 40 else ""


def _spread(cell: str) -> str:
    """A mean, with its spread below it."""
    if isinstance(cell, Html):
        return cell
    mean, plus_minus, spread = cell.partition(" ± ")
    return Html(escaped(mean) + element("small", f" ± {spread}")) if plus_minus else cell


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else number(value)


def _numeric(cell: Any) -> bool:
    try:
        for part in str(cell).split(" ± "):
            float(part.replace(",", "").replace("%", "").replace("infinite", "inf"))
    except ValueError:
        return False
    return True
