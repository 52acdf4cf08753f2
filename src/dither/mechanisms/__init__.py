from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace, Laplace
