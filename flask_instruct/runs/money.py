"""Dollars in a database column: a whole number of 10⁻¹² dollars, so that every database adds them exactly."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN
from decimal import Context
from decimal import Decimal

import sqlalchemy as sa

PLACES = 12
"""A millionth of a dollar for a million tokens; the column holds up to nine million dollars."""

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)


class Money(sa.TypeDecorator[Decimal]):
    """Dollars as :class:`~decimal.Decimal`; sums of the column are dollars too."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: sa.Dialect) -> int | None:
        if value is None:
            return None
        return int(_EXACT.to_integral_value(_EXACT.scaleb(value, PLACES)))

    def process_result_value(self, value: int | Decimal | None, dialect: sa.Dialect) -> Decimal | None:
        # PostgreSQL gives the sum of whole numbers as a numeric. A written number is never rounded, a computed one may.
        return Decimal(f"{int(value)}E-{PLACES}") if value is not None else None
