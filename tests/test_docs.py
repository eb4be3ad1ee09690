"""The documents: every snippet runs, pages belong to their sources, the site builds offline."""

import importlib.util
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest
from sklearn.base import clone
from typer.main import get_command
from typer.testing import CliRunner

import gentle
from gentle.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
FENCE = re.compile(r"^```(python|console|bash|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Less work than the documents ask for: small networks, few rows, and for commands that would start
# processes or take minutes these options on top.
HURRY = {"n_steps": 20, "hidden_widths": (8,), "n_trees": 5}
N_ROWS = 150
SHORTER = {
    "simulate": ["--n", str(N_ROWS)],
    "compare": ["--workers", "1", "--folds", "2"],
    "tune": ["--trials", "1", "--workers", "1"],
}
ONLY_PARSED = {"reproduce", "--cluster"}  # hours of work, many machines; with tests of their own
SET_UP = {"explorer": ["datasets cps91 --out .", "fit train.csv --target earns --out model/"]}


def tool(name):
    """A program of ``docs/tools`` as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snippets(page):
    """Language and text of the snippets of a page, in order."""
    return FENCE.findall(page.read_text())


def commands(language, text):
    """The calls of ``gentle`` in a snippet: after a prompt, or as lines of their own."""
    prompt = "$ " if language == "console" else ""
    for line in text.splitlines():
        if line.startswith(f"{prompt}gentle "):
            yield shlex.split(line.removeprefix(prompt), comments=True)[1:]


PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    if snippets(page) and page.name != "commands.md"  # made from --help, whose examples are checked
]


@pytest.fixture
def hurried(monkeypatch, tmp_path):
    """A folder of its own, and a library that learns little."""
    from gentle import cluster
    from gentle.explorer import server
    from gentle.explorer.exhibit import Exhibit
    from gentle.models import registry

    defaults = gentle.GENTLE.__init__.__kwdefaults__ | HURRY
    monkeypatch.setattr(gentle.GENTLE.__init__, "__kwdefaults__", defaults)
    monkeypatch.setattr(registry, "MODULES", dict(registry.MODULES))  # pages may add to it
    monkeypatch.setattr(server, "require_extra", lambda: None)
    monkeypatch.setattr(
        server, "explore", lambda model, data, **_: Exhibit.of(model, data) if model else None
    )
    for name in ("fit", "search", "grid_search", "sample_to_parquet", "predict_to_parquet"):
        called = create_autospec(getattr(cluster, name))  # tests/test_cluster.py has the real ones
        monkeypatch.setattr(cluster, name, called)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def few_rows(monkeypatch):
    """Data sets of few rows."""
    load = gentle.datasets.load
    monkeypatch.setattr(gentle.datasets, "load", lambda *a, **k: shortened(load(*a, **k)))


def shortened(benchmark):
    """A data set with few rows, spread over the whole."""
    parts = {}
    for name in ("train", "val", "test"):
        table = getattr(benchmark, name)
        rows = np.linspace(0, len(table) - 1, min(N_ROWS, len(table))).astype(int)
        parts[name] = gentle.datasets.Table(
            table.X.iloc[rows].reset_index(drop=True), table.y[rows]
        )
    return type(benchmark)(**vars(benchmark) | parts)


def module_of(monkeypatch, page):
    """A module that a page's Python fills, as a reader's script would."""
    module = types.ModuleType(f"page_{page.stem}")
    module.X, module.y = gentle.datasets.load("wage1").train  # "your data", where a page says so
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def run_command(arguments):
    """Run a command as a user would; it must succeed."""
    if ONLY_PARSED & set(arguments):
        assert get_command(app).commands[arguments[0]].make_context(arguments[0], arguments[1:])
        return
    result = CliRunner().invoke(app, [*arguments, *SHORTER.get(arguments[0], [])])
    assert result.exit_code == 0, f"gentle {shlex.join(arguments)}\n{result.output}"


def read(page, monkeypatch):
    """Do all that a page tells the reader to do; what its Python has defined."""
    module = module_of(monkeypatch, page)
    for line in SET_UP.get(page.stem, []):
        run_command(line.split())
    for language, text in snippets(page):
        if language == "python":
            exec(compile(text, str(page), "exec"), vars(module))
        for arguments in commands(language, text):
            run_command(arguments)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_tells_its_reader_to_do_works(page, hurried, few_rows, monkeypatch):
    read(page, monkeypatch)


@pytest.mark.filterwarnings("ignore")
def test_the_model_of_the_page_on_models_keeps_the_contract(hurried, few_rows, monkeypatch):
    module = read(DOCS / "adding_a_model.md", monkeypatch)
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(120, 3)), rng.integers(0, 4, 120)
    y = X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=120)
    model = module.LocationScale(random_state=0).fit(X, y, weight)
    copies = np.repeat(np.arange(120), weight)
    copied = clone(model).fit(X[copies], y[copies])
    np.testing.assert_array_equal(model.predict(X), copied.predict(X))
    np.testing.assert_array_equal(model.predict(X)[7:9], model.predict(X[7:9]))
    levels = np.array([0.01, 0.3, 0.5, 0.99])
    quantiles = model.predict_quantiles(X, levels)
    assert np.all(np.diff(quantiles) >= 0)
    np.testing.assert_allclose(model.cdf(X, quantiles), np.tile(levels, (120, 1)), atol=1e-9)
    with pytest.raises(ValueError, match="alpha must be positive"):
        module.LocationScale(alpha=0).fit(X, y)
    many = rng.normal(size=(3000, 1))
    noise = rng.normal(size=3000)
    learned = module.LocationScale().fit(many, 2 * many[:, 0] + np.exp(many[:, 0] / 2) * noise)
    truth = [2 * x + np.exp(x / 2) * np.array([-1.2816, 0, 1.2816]) for x in (-1.0, 1.0)]
    got = learned.predict_quantiles([[-1.0], [1.0]], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(got, truth, atol=0.25)


def test_the_page_on_commands_is_what_the_commands_say():
    made = tool("commands")
    assert made.PAGE.read_text() == made.page(), "run: python docs/tools/commands.py"
    for language, text in snippets(made.PAGE):
        for name, *arguments in commands(language, text):
            assert get_command(app).commands[name].make_context(name, arguments)


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS.rglob("*.md")], ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)", re.sub(r"`[^`]*`", "", text))
    gone = [to for to in targets if ":" not in to and not (page.parent / to).exists()]
    assert not gone


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_tutorials_are_made_from_their_scripts(script):
    builder = tool("tutorials")
    page, source = (builder.PAGES / f"{script.stem}.md").read_text(), script.read_text()
    stale = f"run: python docs/tools/tutorials.py {script.stem}"
    assert f"made from {builder.fingerprint(source)} -->" in page, stale
    for words, body in builder.cells(source):
        assert (body if words == builder.TEXT else f"```python\n{body}\n```") in page, stale
    for description, picture in re.findall(r"!\[(.*)\]\(([\w-]+\.png)\)", page):
        assert len(description) > 20
        assert (builder.PAGES / picture).stat().st_size > 5_000


def test_there_are_five_tutorials_and_all_formulas_are_drawn():
    assert len(TUTORIALS) == 5
    shown = set(re.findall(r"pictures/(\w+)\.svg", (DOCS / "method.md").read_text()))
    assert shown == set(tool("pictures").FORMULAS)
    assert all((DOCS / "pictures" / f"{name}.svg").exists() for name in shown)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_tutorials_run(script, hurried):
    figures = []
    source = script.read_text()
    for _ in tool("tutorials").run(source, lambda figure: figures.append(figure) or "here.png"):
        pass
    assert figures


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install 'gentle-ot[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_its_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    loads = r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(https?:)?//|<link[^>]*href=\"(https?:)?//"
    for page in pages:
        found = [m[0] for m in re.finditer(loads, page.read_text()) if "canonical" not in m[0]]
        assert not found, f"{page.name}: {found}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_the_site_can_be_read_and_searched_as_files_without_a_server(site):
    pytest.importorskip("playwright", reason="playwright is not installed")
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from explorer_screenshots import browser
    finally:
        sys.path.pop(0)
    asked = []
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "start", "method", "tutorials/incomes", "reference/gentle"):
            page.goto((site / f"{name}.html").as_uri())
            broken = "() => [...document.images].filter(i => i.complete && !i.naturalWidth).length"
            assert page.evaluate(broken) == 0
        page.locator("input.md-search__input").click()
        page.keyboard.type("top-code", delay=50)
        page.locator(".md-search-result__link").first.wait_for()
        narrow = chromium.new_page(viewport={"width": 390, "height": 844})
        for path in site.rglob("*.html"):
            narrow.goto(path.as_uri())
            wide = narrow.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= 390, f"{path.relative_to(site)} is {wide} pixels wide on a telephone"
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
