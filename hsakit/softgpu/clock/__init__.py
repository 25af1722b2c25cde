"""The software node's clock: a discrete-event model of what concurrent kernels and copies do to one another's times.

Pure Python; knows neither the driver nor AMD's libraries.  Equations, constants and limits: docs/clock.md.
"""

from .constants import Constants
from .cost import HOST, Cost
from .machine import Machine
from .running import PARKED, Cohort, Job, Running
from .timeline import Event, Timeline

__all__ = ["HOST", "PARKED", "Cohort", "Constants", "Cost", "Event", "Job", "Machine", "Running", "Timeline"]
