"""A page in the browser on which one asks a fitted model: what if this covariate were otherwise?"""

from gentle.explorer.server import explore

__all__ = ["explore"]
