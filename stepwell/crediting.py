"""From the settings of credit to a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

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
    Around,
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
    Undisturbed,
    WeighedByEvents,
    Whitened,
    Without,
    Worth,
    by_token,
    by_turn,
    needs_of,
)
from stepwell.credit.reshape import Shaping
from stepwell.credit.shaping import Overlong
from stepwell.envs.interrupt import Interrupted
from stepwell.errors import ConfigError, nearest
from stepwell.evaluation.recovery import first_event
from stepwell.protocols import Assign, Domain
from stepwell.rewards.montecarlo import Continue
from stepwell.rewards.outcome import Pay, paid
from stepwell.rollout import Prefix, answered, began
from stepwell.types import Ending, EndingKind, Episode, Reply, Task, Turn

__all__ = ["around_of", "check_states", "gae", "overlong_of", "replayer", "rule_of", "segment_of", "shaping_of", "supplied", "undisturbed"]

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


def around_of(config: Config, domain: Domain, go_on: Continue, go_on_undisturbed: Continue) -> Around | None:
    """What credit does around interruptions; None where it does nothing.

    Args:
        config: Of the run.
        domain: In which something may happen.
        go_on: Continues episodes in it.
        go_on_undisturbed: Continues them in the same where nothing happens.
    """
    around, reward = config.interrupted_credit, config.reward
    if around.kind == "none":
        return None
    if around.kind != "counterfactual":
        return WeighedByEvents(around.kind, around.factor)
    assert isinstance(domain, Interrupted) and not isinstance(reward, CustomConfig)
    name = config.credit.kind if isinstance(config.credit, GroupCredit) else getattr(config.credit, "baseline", "")
    without = undisturbed(domain.inner, go_on, go_on_undisturbed, reward.pay, around.continuations)
    return Undisturbed(without, _baseline(name))


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


def undisturbed(domain: Domain, go_on: Continue, go_on_undisturbed: Continue, pay: Pay, continuations: int) -> Without:
    """Finds out what interrupted episodes would have come to: by `continuations` in the undisturbed domain, and as many after the event.

    The actions up to the event are replayed in the undisturbed domain. An episode that sees something else there before the event (a
    restock that is still to come) cannot be told, nor one of which all continuations fail or have no verdict.

    Args:
        domain: In which nothing happens.
        go_on: Continues episodes where something happens.
        go_on_undisturbed: Continues them in `domain`.
        pay: What the end of an episode is paid.
        continuations: From each of the two.
    """

    def worths(episodes: Sequence[Episode]) -> list[Worth | None]:
        calm = [_until_event(domain, episode) for episode in episodes]
        draws = range(continuations)
        open_ones = [one for one in calm if one is not None and not one.turns[-1].reply.done]
        ahead = go_on_undisturbed([Prefix(one, one.num_tokens, draw) for one in open_ones for draw in draws])
        after = go_on([Prefix(one, _tokens_until_event(one), draw) for one in episodes for draw in draws])
        played = {id(one): ahead[at * continuations : (at + 1) * continuations] for at, one in enumerate(open_ones)}
        found: list[Worth | None] = []
        for number, one in enumerate(calm):
            mine = after[number * continuations : (number + 1) * continuations]
            would_be = [] if one is None else played.get(id(one), [one])
            values = [[value for episode in some if (value := paid(episode, pay)) is not None] for some in (would_be, mine)]
            cost = len(mine) + len(played.get(id(one), ()))
            found.append(Worth(float(np.mean(values[0])), float(np.mean(values[1])), cost) if all(values) else None)
        return found

    return worths


def _tokens_until_event(episode: Episode) -> int:
    """Sampled tokens up to the turn in whose reply something first happened."""
    event = first_event(episode)
    assert event is not None
    return sum(len(turn.token_ids) for turn in episode.turns[: event + 1])


def _until_event(domain: Domain, episode: Episode) -> Episode | None:
    """The turns up to the event, answered by a world in which nothing happens; None where it answers otherwise before that."""
    event = first_event(episode)
    assert event is not None
    try:
        environment = domain.environment(episode.task, episode.member)
        start = began(environment)
        replies = [answered(environment, turn.action) for turn in episode.turns[: event + 1]]
    except Exception:  # As in a rollout: what a world raises is no fault of the run. What is not known is counted.
        return None
    turns = [replace(turn, reply=reply) for turn, reply in zip(episode.turns, replies, strict=False)]
    before = zip(turns[:-1], episode.turns, strict=False)
    if start.text != episode.start.text or any(_shown(one.reply) != _shown(turn.reply) for one, turn in before):
        return None
    done = turns[-1].reply.done
    calm = replace(episode, start=start, turns=tuple(turns), ending=Ending(EndingKind.TERMINATED if done else EndingKind.TURN_LIMIT))
    try:
        return replace(calm, verdict=domain.grade(calm)) if done else calm
    except Exception:
        return None


def _shown(reply: Reply) -> tuple[str, bool, bool]:
    """What an agent sees of a reply; keys of states say also what is still to come."""
    return reply.observation.text, reply.done, reply.valid


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
