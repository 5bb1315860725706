"""What to do next with what is known and what is not."""

from matheron.decisions.active import most_informative
from matheron.decisions.thompson_sampling import Maximizers, thompson

__all__ = ["Maximizers", "most_informative", "thompson"]
