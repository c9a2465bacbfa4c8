"""The local web app: choose a problem, watch it being solved, see and download the schedule."""

from teccl.web.server import serve

__all__ = ["serve"]
