"""The script that streamlit runs, again at every change on the page."""

from gentle.explorer.server import on_show
from gentle.explorer.view import show

if __name__ == "__main__":  # as it is to streamlit
    show(on_show())
