"""The explorer's server: on this machine only, and without a word to any other."""

from __future__ import annotations

import socket
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from gentle.diagnostics import OutOfSupportWarning
from gentle.explorer.exhibit import Exhibit

ADDRESS = "127.0.0.1"
_FIRST_PORT, _N_PORTS = 8501, 100
_shown: list[Exhibit] = []  # the one that the page shows


def explore(
    model: Any = None,
    data: Any = None,
    *,
    port: int | None = None,
    open_browser: bool = False,
    say: Callable[[str], object] = print,
) -> None:
    """Show a model on a page in the browser, until Ctrl-C.

    The page has a control for each covariate and shows what the model says of the response there:
    density, distribution function, quantiles, and how they differ from those of a covariate pinned
    before. It is served to this machine only and fetches nothing from elsewhere.

    Args:
        model: A fitted model; without one a small one that comes with the library.
        data: Table of the rows that it was fitted to, with the response under its name. With it,
            the page shows the rows nearest to what is chosen, and how usual that is.
        port: Port of the page; the first free one from 8501 on if left out.
        open_browser: Open the page.
        say: Told the page's address once it is there.

    Raises:
        ImportError: Streamlit or plotly is not installed.
        ValueError: The port is taken, or the data do not fit the model.

    Example:
        >>> explore(model, data=table)  # doctest: +SKIP
    """
    require_extra()
    exhibit = Exhibit.demo() if model is None else Exhibit.of(model, data)
    port = free_port(port)
    cli = import_module("streamlit.web.cli")
    _shown[:] = [exhibit]
    url = f"http://{ADDRESS}:{port}"
    Thread(target=_announce, args=(port, url, open_browser, say), daemon=True).start()
    page = Path(__file__).with_name("page.py")
    flags = [f"--{name}={value}" for name, value in _settings(port).items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutOfSupportWarning)  # the page says it
        cli.main(["run", str(page), *flags], prog_name="streamlit", standalone_mode=False)


def on_show() -> Exhibit:
    """What the page shows."""
    if not _shown:  # the script was started without `explore`
        _shown.append(Exhibit.demo())
    return _shown[0]


def require_extra() -> None:
    """Raise an ImportError that names the extra if what the page needs is not installed."""
    if any(find_spec(package) is None for package in ("streamlit", "plotly")):
        raise ImportError(
            "the explorer needs streamlit and plotly: pip install 'gentle-ot[explore]'"
        )


def free_port(wanted: int | None = None) -> int:
    """The port asked for, or the first free one from 8501 on.

    Raises:
        ValueError: It is taken, or all are.
    """
    for port in [wanted] if wanted else range(_FIRST_PORT, _FIRST_PORT + _N_PORTS):
        with socket.socket() as probe:
            if sys.platform != "win32":  # there it would allow two servers on one port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ADDRESS, port))
                return port
            except OSError as error:
                reason = error.strerror
    if wanted:
        raise ValueError(f"port {wanted} cannot be used ({reason}); choose another, or none")
    raise ValueError(f"no port from {_FIRST_PORT} to {_FIRST_PORT + _N_PORTS - 1} is free")


def _settings(port: int) -> dict[str, Any]:
    """Streamlit's: nothing leaves the machine, no file is watched, colours of enough contrast."""
    return {
        "server.address": ADDRESS,
        "server.port": port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.baseUrlPath": "",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "logger.hideWelcomeMessage": "true",
        "logger.level": "warning",
        "theme.base": "light",
        "theme.primaryColor": "#0072B2",
        "theme.metricValueFontSize": "1.4rem",
    }


def _announce(port: int, url: str, open_browser: bool, say: Callable[[str], object]) -> None:
    """Tell the address, and open it, as soon as somebody answers there."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex((ADDRESS, port)) == 0:
                break
        time.sleep(0.1)
    else:
        return
    say(f"The explorer is at {url} (Ctrl-C ends it).")
    if open_browser:
        import webbrowser

        webbrowser.open(url)
