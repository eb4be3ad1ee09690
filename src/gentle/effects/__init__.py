"""What does a treatment, or a change of covariates, do to the distribution of a response?

Effects are read off a fitted model of Y given X: the population's rows get one value of the
treatment, then the other, and the two distributions of responses are compared. That is an effect
only under assumptions which no data can show; they are printed with every result.
"""

from gentle.effects.estimate import policy_effects, treatment_effects
from gentle.effects.overlap import Overlap, propensity
from gentle.effects.results import Effects

__all__ = ["treatment_effects", "policy_effects", "Effects", "Overlap", "propensity"]
