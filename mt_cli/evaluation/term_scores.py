"""Share of the terms of a glossary that translations use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import BaseModel, FiniteFloat

from mt_cli.corpus.glossary import Glossary, term_uses
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.rows import Pair


class TermScores(BaseModel):
    """Shares of the terms in the sources of a test set, 0-100."""

    num_found: int
    """Number of terms in the sources."""
    used: FiniteFloat
    """Terms whose translation is as in the glossary."""
    inflected: FiniteFloat
    """Terms whose translation is in another form."""
    in_references: FiniteFloat
    """Terms that the references have, in any form."""

    @classmethod
    def of(cls, glossary: Glossary, pairs: Sequence[Pair], hypotheses: Sequence[str], protection: Protection) -> Self:
        """Shares of the terms in the sources of pairs, without their protected spans, by hypotheses and references."""
        found = [glossary.find(protection.protect(source).text) for source, _ in pairs]
        counts, in_references = (
            Counter(use.status for row in zip(found, texts, strict=True) for use in term_uses(*row))
            for texts in (hypotheses, [reference for _, reference in pairs])
        )
        numbers = counts["used"], counts["inflected"], in_references["used"] + in_references["inflected"]
        used, inflected, of_references = (round(100 * number / max(1, counts.total()), 2) for number in numbers)
        return cls(num_found=counts.total(), used=used, inflected=inflected, in_references=of_references)

    def describe(self) -> Iterator[str]:
        if not self.num_found:
            yield "  terms  none of the glossary are in the sources"
            return
        forms = f"{self.used:.2f} as in the glossary, {self.inflected:.2f} in another form"
        yield f"  terms  {self.used + self.inflected:6.2f}  % of {self.num_found:,} used: {forms}"
        yield f"         {self.in_references:6.2f}  % of them are in the references"
