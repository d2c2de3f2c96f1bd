"""The SimPy model: predicts when every kernel of a program runs, without a GPU."""

from sim.backend import SimBackend
from sim.settings import EAGER_HOST, Gpu, Host

__all__ = ["EAGER_HOST", "Gpu", "Host", "SimBackend"]
