"""From the settings of the curriculum to one."""

from __future__ import annotations

from typing import cast

from stepwell.config import Config, CustomConfig, EntropyCurriculumConfig, PoolsConfig, UniformConfig
from stepwell.curriculum import Accuracy, Bins, EntropyCurriculum, Gated, Pools, Uniform, Zone, mixed
from stepwell.custom import custom
from stepwell.protocols import Curriculum, Domain

__all__ = ["curriculum_of"]


def curriculum_of(config: Config, domain: Domain, difficulty: tuple[float, float]) -> Curriculum:
    """The curriculum that the settings name, with its gate.

    Args:
        config: Of the run.
        domain: Where tasks come from.
        difficulty: Range of training tasks.

    Raises:
        ConfigError: A setting that cannot work.
    """
    chosen = config.curriculum
    if isinstance(chosen, CustomConfig):
        options = {"domain": domain, "seed": config.seed, **chosen.options}
        verbs = ("draw", "admit", "observe", "state", "restore")
        return cast(Curriculum, custom(CustomConfig(kind=chosen.kind, options=options), "curriculum", verbs))
    made = _made(config, domain, difficulty)
    if chosen.admit == "all":
        return made
    return Gated(made, mixed if chosen.admit == "mixed" else Accuracy(*chosen.accuracy))


def _made(config: Config, domain: Domain, difficulty: tuple[float, float]) -> Curriculum:
    chosen = config.curriculum
    assert not isinstance(chosen, CustomConfig)
    if isinstance(chosen, UniformConfig):
        return Uniform(domain, difficulty, config.seed)
    if isinstance(chosen, PoolsConfig):
        return Pools(domain, difficulty, chosen.size, Accuracy(*chosen.accuracy), chosen.again, config.seed)
    bins = Bins(domain, difficulty, chosen.bins, chosen.keep, config.seed)
    if isinstance(chosen, EntropyCurriculumConfig):
        return EntropyCurriculum(
            bins,
            gamma=chosen.gamma,
            visits=chosen.visits,
            patience=chosen.patience,
            edge=chosen.edge,
            rehearsal=chosen.rehearsal,
            drop=chosen.drop,
            target=chosen.target,
        )
    return Zone(bins, beta=chosen.beta, kl=chosen.kl, rate=chosen.rate, centre=chosen.centre)
