"""``python -m gentle`` is the ``gentle`` command."""

from gentle.cli import main

if __name__ == "__main__":
    main()
