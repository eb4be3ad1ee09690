"""A plain web page: text, tables, pictures, all of it in one file; nothing is trusted as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

# What HTML does not allow in a page, however it is written.
_FORBIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)

_NUMBER = re.compile(r"$|[-+]?[\d∞]|–$|yes$|missing$")  # how cells of columns of numbers begin
_LONG = 32  # characters of a cell that may be broken into lines

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 1.5rem 1.25rem 4rem; background: #fff;
  color: #1a1a1a; font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .5rem; padding-top: .75rem;
  border-top: 2px solid #0072b2; }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .25rem; }
p, ul { margin: .5rem 0; max-width: 48rem; }
li { margin: .3rem 0; }
a { color: #005a8d; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid #d55e00;
  outline-offset: 2px; }
.muted { color: #555; font-size: .9rem; }
.verdict, .beware { border-left: 5px solid #0072b2; margin: 1rem 0; max-width: 52rem;
  padding: .6rem 1rem .6rem .5rem; }
.verdict { background: #eef5fa; }
.beware { background: #fdf1e7; border-color: #d55e00; }
.verdict ul, .beware ul { margin: 0; padding-left: 1.5rem; }
nav ol { margin: 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap;
  gap: .25rem 1.25rem; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd;
  white-space: nowrap; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; }
tbody th { font-weight: 600; }
.number { text-align: right; }
.long { white-space: normal; min-width: 14rem; max-width: 24rem; }
.bad { background: #fbe3d6; }
pre { overflow-x: auto; background: #f5f5f5; padding: .75rem 1rem; font-size: .82rem;
  line-height: 1.4; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: .75rem 0; flex: 1 1 18rem; max-width: 28rem; }
figure.wide { max-width: 48rem; overflow-x: auto; }
img { width: 100%; height: auto; display: block; }
figure.wide img { min-width: 34rem; }
figcaption { color: #444; font-size: .88rem; margin-top: .25rem; }
summary { cursor: pointer; padding: .35rem 0; color: #005a8d; }
footer { margin-top: 3rem; }
@media print {
  html { font-size: 10pt; }
  body { max-width: none; padding: 0; }
  nav { display: none; }
  .scroll, pre { overflow: visible; }
  pre { white-space: pre-wrap; }
  table { font-size: 8pt; }
  th, td { white-space: normal; padding: .15rem .3rem; }
  .long { min-width: 0; }
  figure, tr, .verdict, .beware { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
}
"""


class Html(str):
    """A piece of a page; any other text is escaped before it becomes one."""

    __slots__ = ()


def html(content: Any) -> Html:
    """What may stand in a page.

    Example:
        >>> html("a < b & <script>"), html(Html("<b>bold</b>"))
        ('a &lt; b &amp; &lt;script&gt;', '<b>bold</b>')
    """
    if isinstance(content, Html):
        return content
    text = _FORBIDDEN.sub("\ufffd", str(content))
    return Html(escape(text.replace(" %", "\u00a0%")))  # a number and its unit stay together


def tag(name: str, *content: Any, **attributes: str) -> Html:
    """An element; attributes of Python's own names are written with a ``_`` behind.

    Example:
        >>> tag("p", "1 < 2", class_="muted")
        '<p class="muted">1 &lt; 2</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html(text)}"' for key, text in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(map(html, content))}</{name}>")


def paragraph(*sentences: str, muted: bool = False) -> Html:
    """Sentences; empty ones are left out."""
    said = " ".join(sentence for sentence in sentences if sentence)
    return tag("p", said, class_="muted") if muted else tag("p", said)


def bullets(sentences: Iterable[str], class_: str) -> Html:
    """A list in a box."""
    return tag("div", tag("ul", *(tag("li", sentence) for sentence in sentences)), class_=class_)


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    n_names: int = 1,
    bad: Sequence[bool] = (),
) -> Html:
    """A table in a box of its own, in which a wide one is scrolled.

    Args:
        caption: What it shows.
        head: Names of the columns.
        rows: Their cells.
        n_names: Columns of text at the left, also where it looks like numbers.
        bad: Whether a row is marked.
    """
    rows = [list(row) for row in rows]
    right = [all(_NUMBER.match(str(row[j])) for row in rows) for j in range(len(head))]

    def style(j: int, text: Any = "") -> dict[str, str]:
        if len(str(text)) > _LONG:
            return {"class_": "long"}
        return {"class_": "number"} if right[j] and j >= n_names else {}

    top = tag("tr", *(tag("th", name, scope="col", **style(j)) for j, name in enumerate(head)))
    body = []
    for i, row in enumerate(rows):
        cells = [tag("th", row[0], scope="row", **style(0, row[0]))]
        cells += [tag("td", text, **style(j, text)) for j, text in enumerate(row) if j]
        marked = {"class_": "bad"} if i < len(bad) and bad[i] else {}
        body.append(tag("tr", *cells, **marked))
    whole = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def folded(title: str, *content: Html) -> Html:
    """What only some readers want to see."""
    return tag("details", tag("summary", title), *content)


def picture(source: str, alt: str, caption: str, wide: bool = False) -> Html:
    """A picture from a data URI."""
    image = Html(f'<img src="{html(source)}" alt="{html(alt)}">')
    style = {"class_": "wide"} if wide else {}
    return tag("figure", image, tag("figcaption", caption), **style)


def section(name: str, title: str, *content: Html) -> tuple[str, str, Html]:
    """A part of the page: its anchor, its title, and itself."""
    return name, title, tag("section", tag("h2", title), *content, id=name)


def document(
    title: str, subtitle: str, top: Html, sections: Sequence[tuple[str, str, Html]], foot: str
) -> str:
    """The whole page; it forbids its reader's browser to load anything."""
    links = [tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name, _ in sections]
    contents = tag("nav", tag("ol", *links), aria_label="Contents")
    header = tag("header", tag("h1", title), paragraph(subtitle, muted=True), top)
    main = tag("main", *(content for *_, content in sections))
    footer = tag("footer", paragraph(foot, muted=True))
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{header}\n{contents}\n{main}\n{footer}\n</body>\n</html>\n"
    )
