"""What a product costs, phase by phase."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """One phase of a product.

    Attributes:
        name: What it is called, as PopSparse's planner prints it.
        cycles: Cycles of the busiest tile.
        bytes: Temporary memory of one tile in this phase.

    Examples:
        >>> Term("Exchange to reduce", 120.0)
        Term(name='Exchange to reduce', cycles=120.0, bytes=0)
    """

    name: str
    cycles: float
    bytes: int = 0


@dataclass(frozen=True)
class Cost:
    """The phases of a product, in order; printed, it is a table.

    Attributes:
        terms: The phases.

    Examples:
        >>> Cost((Term("Distribution compute", 100.0, 64), Term("Reduction or cast", 20.0))).cycles
        120.0
        >>> print(Cost((Term("Distribution compute", 100.0, 64), Term("Reduction or cast", 20.0))))
        phase                 cycles    share  bytes
        Distribution compute     100   83.3 %     64
        Reduction or cast         20   16.7 %
        Total                    120  100.0 %     64
    """

    terms: tuple[Term, ...]

    def __str__(self) -> str:
        from sparsetile.plan._table import cost_table

        return cost_table(self)

    @property
    def cycles(self) -> float:
        """Cycles of all phases, one after the other."""
        return sum(term.cycles for term in self.terms)

    @property
    def peak_bytes(self) -> int:
        """Most temporary memory that one tile needs at once."""
        return max((term.bytes for term in self.terms), default=0)
