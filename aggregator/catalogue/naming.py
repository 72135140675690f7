"""Names the first failure of a judged attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aggregator.catalogue.entries import Catalogue, default_catalogue
from aggregator.catalogue.facts import Scene, facts_of
from aggregator.catalogue.matching import diagnose
from aggregator.catalogue.source import Sources
from aggregator.verdict import Diagnosis


@dataclass(frozen=True, slots=True)
class Naming:
    """With which entries, and with or without a look into the source that failed."""

    catalogue: Catalogue | None = None
    """The shipped one if None."""
    sources: Sources | None = None

    def diagnosis(self, scene: Scene) -> Diagnosis | None:
        """The entry that fits the first failure best.

        Raises:
            CatalogueError: a file of the catalogue is wrong.
        """
        leads = scene.judgement.leads
        exception = leads[0].signal.exception if leads and leads[0].signal is not None else None
        frames = (*exception.outer_frames, *exception.frames) if exception is not None else ()
        return diagnose(facts_of(scene), self.catalogue or default_catalogue(), frames, self.sources)


SHIPPED = Naming()


def naming_of(catalogues: Sequence[Path] = (), sources: Sequence[Path] = ()) -> Naming:
    """As a command's options ask for it: a site's own entries, folders with the source. Source is looked into.

    Raises:
        CatalogueError: a file of families is wrong.
    """
    return Naming(Catalogue(catalogues) if catalogues else None, Sources(sources))
