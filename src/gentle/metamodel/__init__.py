"""A model in place of a simulator: design, replicate, fit, validate, and then ask it.

A stochastic simulator maps inputs x to random outputs. Run it at a `design` of inputs
(`replicate`), fit any model of this library to the runs, `validate` it against fresh ones, and ask
it what the simulator would answer only by running: `risk` at any inputs, with intervals, or a
`contrast` of two designs on common random numbers. `speed_up` measures what is gained.
"""

from gentle.metamodel.designs import design, replicate
from gentle.metamodel.questions import Contrast, contrast, risk
from gentle.metamodel.validation import SpeedUp, Validation, speed_up, validate

__all__ = [
    "design",
    "replicate",
    "validate",
    "Validation",
    "contrast",
    "Contrast",
    "risk",
    "speed_up",
    "SpeedUp",
]
