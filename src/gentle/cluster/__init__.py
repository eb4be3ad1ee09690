"""The same work on a cluster, by Ray: training in parallel, searches, answers for many rows.

Every function does what its namesake does in one process, and takes one argument more,
``cluster``: "local" starts a cluster on this machine for the time of the call, "auto" joins the one
that this machine belongs to, "ray://host:10001" talks to one elsewhere. It needs the extra ``ray``.
"""

from gentle.cluster.answering import predict_to_parquet, sample_to_parquet
from gentle.cluster.connection import connect
from gentle.cluster.fitting import fit
from gentle.cluster.searching import grid_search, search

__all__ = ["connect", "fit", "search", "grid_search", "sample_to_parquet", "predict_to_parquet"]
