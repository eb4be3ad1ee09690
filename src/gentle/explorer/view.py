"""The explorer's page: what stands where, and what follows from what."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from gentle.explorer import answers, figures
from gentle.explorer.answers import Shape
from gentle.explorer.controls import Control
from gentle.explorer.exhibit import Exhibit, Values

_PLOT: dict[str, Any] = {"displaylogo": False, "displayModeBar": False}
_MAX_DRAWS = 1_000_000
_PREVIEW = 5
_STYLE = """<style>
[data-testid="stMainBlockContainer"] {padding-top: 3rem; padding-bottom: 3rem;}
[data-testid="stMain"] h1 {font-size: 1.9rem; padding: 0;}
[data-testid="stMain"] h3 {font-size: 1.25rem; padding: 0.5rem 0 0.25rem;}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] * {
    color: #50525c !important; opacity: 1;
}
.narrow {display: none;}
@media (max-width: 640px) {
    [data-testid="stMainBlockContainer"] {padding: 3.5rem 1rem 2rem;}
    .narrow {display: block;}
}
</style>"""


class _Streamlit:
    """The package, imported when it is first used: this module can be read without it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what is asked of any object is not asked of the package
            raise AttributeError(name)
        return getattr(import_module("streamlit"), name)


st: Any = _Streamlit()


def show(exhibit: Exhibit) -> None:
    """Lay the page out for what is chosen on it now; streamlit calls this at every change."""
    name, model = exhibit.response, exhibit.model
    st.set_page_config(page_title=f"{name} | gentle explore", layout="wide")
    st.html(_STYLE)
    values = _chosen(exhibit)
    st.title(f"{_plain(name)} given its covariates", anchor=False)
    rows = getattr(model, "training_", None)
    learned = "" if rows is None else f", learned from {rows.n_rows:,} rows"
    st.html("<div class='narrow'>The controls are behind » at the top left.</div>")
    now_at = _plain(_in_words(exhibit, values))
    st.caption(f"{type(model).__name__}{learned}. {exhibit.note} Now: {now_at}.")
    try:
        now = exhibit.distribution(values)
        for doubt in exhibit.doubts(values):
            st.warning(_plain(doubt), icon="⚠️")
    except ValueError as error:  # such as a typed value beyond all reason
        st.error(_plain(str(error)))
        st.stop()
    _headline(exhibit, values, now)
    kept = _pinning(exhibit, values)
    pinned = None if kept is None else exhibit.distribution(kept)
    near = _how_many_near(exhibit, values)
    _curves(exhibit, now, pinned, near)
    _comparison(exhibit, now, pinned)
    _fan(exhibit, values, kept)
    if near is not None:
        _nearest(exhibit, near)
    _samples(exhibit, values, now)


def _chosen(exhibit: Exhibit) -> Values:
    """The controls, and what is chosen with them."""
    state = st.session_state
    if "start" not in state:
        state["start"] = exhibit.start
    with st.sidebar:
        st.header("Covariates", anchor=False)
        typed = st.toggle(
            "Type numbers",
            key="typed",
            on_change=lambda: state.update(start=state["values"]),
            help="Any number, also beyond the training data, in place of sliders.",
        )
        values = {c.label: _widget(c, state["start"][c.label], j, typed)
                  for j, c in enumerate(exhibit.controls)}  # fmt: skip
    state["values"] = values
    return values


def _widget(control: Control, start: Any, j: int, typed: bool) -> Any:
    """The control of the covariate at position j."""
    label, key, c = _plain(control.name), f"{'typed' if typed else 'slider'}-{j}", control
    if c.widget == "fixed":
        st.text_input(
            label, c.said(start), disabled=True, help="It never varied.", key=f"fixed-{j}"
        )
        return start
    gone = c.missing and st.checkbox(f"{label} is missing", start is None, key=f"missing-{j}")
    start = c.start if start is None and c.widget != "choice" else start
    value: Any
    if c.widget == "choice":
        options = list(c.choices or ())
        value = st.selectbox(label, options, options.index(start), key=f"choice-{j}")
    elif c.widget == "order":
        options = list(c.choices or ())
        value = st.select_slider(label, options, start, disabled=gone, key=f"order-{j}")
    elif c.widget == "date":
        span = c.high - c.low
        value = st.date_input(
            label, start, _shifted(c.low, -span), _shifted(c.high, span), disabled=gone,
            key=f"date-{j}", format="YYYY-MM-DD",
        )  # fmt: skip
    else:
        places = "%d" if isinstance(c.step, int) else f"%.{c.digits}f"
        if typed:
            value = st.number_input(
                label, value=start, step=c.step, format=places, disabled=gone, key=key
            )
        else:
            start = min(max(start, c.low), c.high)
            value = st.slider(
                label, c.low, c.high, start, c.step, format=places, disabled=gone, key=key
            )
    return None if gone else value


def _headline(exhibit: Exhibit, values: Values, now: Any) -> None:
    most, nearly_all = exhibit.intervals(values)
    numbers = {
        f"mean {exhibit.response}": exhibit.said(now.mean()[0]),
        "median": exhibit.said(now.quantile(0.5)[0]),
        "80 % interval": most,
        "90 % interval": nearly_all,
    }
    with st.container(horizontal=True, gap="medium"):
        for what, number in numbers.items():
            st.metric(_plain(what), number, width="content")


def _pinning(exhibit: Exhibit, values: Values) -> Values | None:
    """The pinned covariate, if there is one."""
    state = st.session_state
    left, right = st.columns([1, 3], vertical_alignment="center")
    pinned = state.get("pinned")
    if pinned is None:
        left.button("Pin to compare", on_click=lambda: state.update(pinned=values), width="stretch")
        right.caption("Keeps this curve, so that others can be compared with it.")
        return None
    left.button("Unpin", on_click=lambda: state.pop("pinned"), width="stretch")
    differing = {k: v for k, v in pinned.items() if v != values[k]}
    said = _in_words(exhibit, differing) if differing else "the same covariate as now"
    right.caption(f"Pinned (dashed): {_plain(said)}.")
    return pinned


def _how_many_near(exhibit: Exhibit, values: Values) -> Any:
    """The nearest training rows, as many as the number input below the curves says."""
    if exhibit.rows is None:
        return None
    return exhibit.nearest(values, st.session_state.get("n_near", 50))


def _curves(exhibit: Exhibit, now: Any, pinned: Any, near: Any) -> None:
    shapes = {"now": Shape.of(now)} | ({} if pinned is None else {"pinned": Shape.of(pinned)})
    ends = answers.window(exhibit.model.marginal_, *shapes.values())
    responses = None
    if near is not None and exhibit.response in near:
        responses = near[exhibit.response].dropna().to_numpy()
    left, right = st.columns(2)
    for column, draw, title in (
        (left, figures.density, "Density"),
        (right, figures.cdf, "Distribution function"),
    ):
        column.subheader(title, anchor=False)
        figure = draw(shapes, exhibit.response, ends, responses)
        column.plotly_chart(figure, config=_PLOT, key=title, theme=None)


def _comparison(exhibit: Exhibit, now: Any, pinned: Any) -> None:
    left, right = st.columns([3, 2])
    with left:
        st.subheader("Quantiles", anchor=False)
        st.table(answers.quantile_table(now, pinned).map(exhibit.said))
        if pinned is not None:
            st.caption("A difference of quantiles is not a quantile of differences.")
    with right:
        name = _plain(exhibit.response)
        st.subheader("Chance above a threshold", anchor=False)
        digits = exhibit.digits
        t = st.number_input(
            f"Threshold for {name}",
            value=round(float(exhibit.model.marginal_.quantile(0.5)[0]), digits),
            step=10.0 ** (2 - digits),
            format=f"%.{max(0, digits)}f",
            key="threshold",
        )
        chances = {"now": now} | ({} if pinned is None else {"pinned": pinned})
        with st.container(horizontal=True, gap="medium"):
            for who, dist in chances.items():
                chance = 100 * answers.exceedance(dist, t)
                st.metric(
                    f"P({name} > {exhibit.said(t)}), {who}", f"{chance:.1f} %", width="content"
                )
        if pinned is not None:
            apart = exhibit.said(answers.distance(now, pinned))
            st.metric("Wasserstein distance of the two", apart, help=_W1)


_W1 = "How far, on average, one distribution must be moved to become the other (of order 1)."


def _fan(exhibit: Exhibit, values: Values, pinned: Values | None) -> None:
    st.subheader("Along a covariate", anchor=False)
    free = [c for c in exhibit.controls if c.widget != "fixed"] or exhibit.controls
    control = st.selectbox(
        "Covariate to move, the others fixed", free, format_func=lambda c: c.name, key="along"
    )
    fans = {"now": exhibit.along(values, control.label)}
    if pinned is not None:
        fans["pinned"] = exhibit.along(pinned, control.label)
    figure = figures.fan(fans, control, exhibit.response, values[control.label])
    st.plotly_chart(figure, config=_PLOT, key="fan", theme=None)


def _nearest(exhibit: Exhibit, near: Any) -> None:
    st.subheader("What the answer rests on", anchor=False)
    n_rows = len(exhibit.rows) if exhibit.rows is not None else 0
    st.number_input("Nearest rows", 1, max(n_rows, 1), min(50, n_rows), key="n_near")
    st.dataframe(near.round({"distance": 3}), height=245)
    told = "" if exhibit.y is not None else f" The data have no column {exhibit.response!r}."
    st.caption(
        "The rows of the data nearest to the chosen values, counted from 0; grey behind the "
        "curves, where a ring is their share at a single value. Distances are in standard "
        f"deviations of numbers; two levels of a category are 1 apart.{_plain(told)}"
    )


def _samples(exhibit: Exhibit, values: Values, now: Any) -> None:
    st.subheader("Samples", anchor=False)
    left, middle, right = st.columns(3, vertical_alignment="bottom")
    n = left.number_input("Number of draws", 1, _MAX_DRAWS, 1000, key="n_draws")
    seed = middle.number_input("Seed", 0, 2**31 - 1, 0, key="seed")
    right.download_button(
        "Download draws as CSV",
        lambda: exhibit.draws(values, n, seed).to_csv(index=False).encode(),
        "draws.csv",
        "text/csv",
        on_click="ignore",
        width="stretch",
    )
    first = now.sample(min(n, _PREVIEW), seed)[0]
    numbers = ", ".join([*(exhibit.said(y) for y in first), *["…"] * (n > _PREVIEW)])
    st.caption(
        f"The first of them: {numbers}; with equal seeds, draws are equal to those of "
        "model.sample(X, n, seed)."
    )


def _in_words(exhibit: Exhibit, values: Values) -> str:
    return ", ".join(f"{c.name} {c.said(values[c.label])}" for c in exhibit.controls
                     if c.label in values)  # fmt: skip


def _shifted(day: Any, by: Any) -> Any:
    """A day moved as far as the calendar goes."""
    try:
        return day + by
    except OverflowError:
        return day


def _plain(text: str) -> str:
    """A text in which no sign has a meaning for Markdown."""
    return re.sub(r"([\\`*\[\]$:~<>#|]|\b_|_\b)", r"\\\1", text)
