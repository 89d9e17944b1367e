"""From the settings of credit to a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from stepwell.config import (
    Config,
    CounterfactualCredit,
    CustomConfig,
    GAECredit,
    GiGPOCredit,
    GroupCredit,
    IStarCredit,
    LossConfig,
    MinFormCredit,
    PrimeCredit,
    ProcessSupervisionCredit,
    ProcessToGoCredit,
    ReinforcePPBaselineCredit,
    ReinforcePPCredit,
    RePIRLCredit,
    SuffixCredit,
    says_confidence,
)
from stepwell.credit import (
    GAE,
    Adaptive,
    Baseline,
    Centred,
    Counterfactual,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    Need,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    Raw,
    ReinforcePlusPlus,
    RePIRL,
    Replay,
    Rule,
    Segment,
    Standardised,
    SuffixLogRatio,
    Whitened,
    by_token,
    by_turn,
    needs_of,
)
from stepwell.credit.reshape import Shaping
from stepwell.credit.shaping import Overlong
from stepwell.errors import ConfigError, nearest
from stepwell.protocols import Assign, Domain
from stepwell.rewards.outcome import Pay, paid
from stepwell.rollout import answered, began
from stepwell.types import Ending, EndingKind, Episode, Task, Turn

__all__ = ["check_states", "gae", "overlong_of", "replayer", "rule_of", "segment_of", "shaping_of", "supplied"]

_BASELINES: dict[str, Baseline | None] = {
    "grpo": Standardised(),
    "drgrpo": Centred(),
    "rloo": LeaveOneOut(),
    "raw": Raw(),
    "none": None,
}


def rule_of(config: Config, domain: Domain) -> Assign:
    """The rule that the settings name; not one of the user's own."""
    credit = config.credit
    if isinstance(credit, GAECredit):
        return Whitened(gae(credit)) if credit.whiten else gae(credit)
    if isinstance(credit, GroupCredit):
        return OutcomeOnly(_baseline(credit.kind), credit.scale)
    if isinstance(credit, ReinforcePPCredit):
        return ReinforcePlusPlus(credit.alpha, credit.discount)
    if isinstance(credit, ReinforcePPBaselineCredit):
        return Whitened(OutcomeOnly(Centred()))
    if isinstance(credit, GiGPOCredit):
        return GiGPO(_baseline(credit.baseline), credit.alpha, _baseline(credit.step_baseline), credit.discount, credit.pays)
    if isinstance(credit, CounterfactualCredit):
        pay = "success" if isinstance(config.reward, CustomConfig) else config.reward.pay
        return Counterfactual(replayer(domain, pay), _baseline(credit.baseline), credit.alpha)
    return _judged(config)


def _judged(config: Config) -> Assign:
    """Rules that read the rewards of steps, which may be mixed in as far as the judge is trusted; and the suffix log-ratio."""
    credit = config.credit
    rule: Rule
    if isinstance(credit, IStarCredit):
        rule = IStar(_baseline(credit.baseline), credit.alpha, Standardised(noise_floor=credit.noise_floor), credit.only_mixed)
    elif isinstance(credit, ProcessToGoCredit):
        rule = ProcessToGo(_BASELINES[credit.baseline], credit.alpha, discount=credit.discount)
    elif isinstance(credit, ProcessSupervisionCredit):
        rule = ProcessSupervision(_BASELINES[credit.baseline], credit.alpha, Standardised(noise_floor=credit.noise_floor))
    elif isinstance(credit, MinFormCredit):
        rule = MinForm(_BASELINES[credit.baseline], credit.alpha, credit.temperature)
    elif isinstance(credit, PrimeCredit):
        rule = Prime(credit.alpha, credit.discount, credit.form, credit.unit)
    elif isinstance(credit, RePIRLCredit):
        rule = RePIRL(credit.alpha, credit.discount, credit.alone, credit.unit)
    else:
        assert isinstance(credit, SuffixCredit)
        return SuffixLogRatio(_baseline(credit.baseline), credit.beta, credit.since)
    rule = Adaptive(rule) if credit.mix == "adaptive" else rule
    return Whitened(rule) if isinstance(credit, PrimeCredit | RePIRLCredit) and credit.whiten else rule


def gae(credit: GAECredit) -> GAE:
    """Generalised advantage estimation by these settings: what the critic learns, and the rule before whitening."""
    return GAE(credit.discount, credit.lam, credit.outcome_weight, credit.alpha, credit.truncated)


def overlong_of(loss: LossConfig) -> Overlong | None:
    """What outcomes are charged with for length; None is nothing."""
    return None if loss.overlong_limit is None else Overlong(loss.overlong_limit, loss.overlong_buffer, loss.overlong_penalty)


def shaping_of(config: Config) -> Shaping | None:
    """What happens to step rewards before credit; None where nothing does."""
    return Shaping(**config.shaping.model_dump(), turns=config.rollout.turns) if config.shaping.is_on else None


def segment_of(config: Config) -> Segment:
    """Where steps begin and end, for rewards of the library."""
    credit = config.credit
    if isinstance(credit, CustomConfig | GroupCredit | ReinforcePPBaselineCredit | GiGPOCredit | CounterfactualCredit):
        return by_turn
    return by_token if credit.level == "token" else by_turn


def supplied(config: Config, rule: Assign) -> Assign:
    """The rule, if what it needs is there. A reward of the user's may bring values and confidence of its own.

    Raises:
        ConfigError: It needs a critic's values, or the judge's confidence, and nothing has them; or what nobody knows.
    """
    needs, reward = needs_of(rule), config.reward
    for unknown in sorted(needs.difference(get_args(Need))):
        raise ConfigError(f"credit.kind is {config.credit.kind!r}, whose needs name {unknown!r}; {nearest(unknown, get_args(Need))}.")
    if "values" in needs and not isinstance(config.credit, GAECredit) and not isinstance(reward, CustomConfig):
        raise ConfigError(
            f"credit.kind is {config.credit.kind!r}, which needs a critic's values, and reward.kind {reward.kind!r} has none; "
            "use credit.kind=gae, which makes a critic, or a reward of your own that sets values_S."
        )
    if "confidence" in needs and not says_confidence(reward):
        raise ConfigError(
            f"credit.kind is {config.credit.kind!r}, which needs a judge that says how far to trust it, and reward.kind {reward.kind!r} "
            "does not; use reward.kind=implicit, or a reward of your own that sets confidence."
        )
    return rule


def check_states(config: Config, domain: Domain, task: Task) -> None:
    """Whether credit by states can find any.

    Raises:
        ConfigError: The domain's first observation has no state_key, and the rule compares turns by it.
    """
    if isinstance(config.credit, GiGPOCredit) and not began(domain.environment(task, 0)).state_key:
        raise ConfigError(
            f"credit.kind is 'gigpo', which compares turns that begin in the same state, and the first observation of {task.key!r} has no "
            "state_key; choose a domain whose observations have one, or another credit rule."
        )


def _baseline(name: str) -> Baseline:
    made = _BASELINES[name]
    assert made is not None
    return made


def replayer(domain: Domain, pay: Pay) -> Replay:
    """Plays an episode's actions in a fresh environment, but for one turn, and says what the end is paid; see `Counterfactual`.

    What follows the end of the shortened episode is not played; one that does not end is graded as one whose turns ran out. None where the
    environment fails, or the grader has no verdict.
    """

    def outcome(episode: Episode, left_out: int) -> float | None:
        try:
            return paid(_without(domain, episode, left_out), pay)
        except Exception:  # As in a rollout: what a world raises is no fault of the run. The rule counts turns of which nothing is known.
            return None

    return outcome


def _without(domain: Domain, episode: Episode, left_out: int) -> Episode:
    environment = domain.environment(episode.task, episode.member)
    start = began(environment)
    turns: list[Turn] = []
    for number, turn in enumerate(episode.turns):
        if number != left_out and not (turns and turns[-1].reply.done):
            turns.append(replace(turn, reply=answered(environment, turn.action)))
    done = bool(turns) and turns[-1].reply.done
    ending = Ending(EndingKind.TERMINATED) if done else Ending(EndingKind.TURN_LIMIT, "a turn was left out")
    short = replace(episode, start=start, turns=tuple(turns), ending=ending)
    return replace(short, verdict=domain.grade(short))
