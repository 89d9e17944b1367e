"""The loop: draw, act, judge, credit, learn.

Tracking, checkpoints and evaluation live outside (`stepwell.run`). All that a step draws is seeded by (run seed, what for, step, ...).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Literal, NamedTuple

import numpy as np

from stepwell.credit import Around, credit_metrics, needs_of
from stepwell.credit.process_weight import weighed
from stepwell.credit.reshape import Shaping, shaped_metrics, with_raw
from stepwell.credit.shaping import Overlong, charge_kl, charge_metrics
from stepwell.engine.batch import episode_rows, join, policy_rows
from stepwell.errors import ConfigError, ContractViolation, RunError
from stepwell.losses import Averaging, CloningLoss, PolicyLoss, Watched, token_weights
from stepwell.protocols import (
    Assign,
    Curriculum,
    Domain,
    KeptPolicy,
    Model,
    OptimizerSpec,
    Policy,
    ProcessReward,
    RewardLearner,
    SamplesAhead,
    Saveable,
)
from stepwell.rollout import Player, rollout
from stepwell.seeding import generator
from stepwell.types import JSON, Credited, Episode, Floats, Group, Metrics, Row, Scored

__all__ = ["Cloning", "Learning", "Parts", "Schedule", "StepResult", "Trainer", "collect", "update"]


def never(step: int) -> bool:
    """At no step."""
    return False


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate over steps: linear warm-up, then constant, linear or cosine decay to `floor` x lr."""

    lr: float
    warmup: int = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    floor: float = 0.0

    def at(self, step: int, steps: int) -> float:
        """Rate of 0-based `step` of `steps`."""
        rising = min(1.0, (step + 1) / (self.warmup + 1))
        done = step / max(steps, 1)
        left = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}[self.decay]
        return self.lr * rising * (self.floor + (1.0 - self.floor) * left)


@dataclass(frozen=True, slots=True)
class Cloning:
    """The warm start: `batch` demonstrations a step."""

    steps: int
    batch: int
    schedule: Schedule
    optimizer: OptimizerSpec
    demonstration: Callable[[int], Episode]
    """The n-th demonstration of the run."""


@dataclass(frozen=True, slots=True)
class Learning:
    """How the policy learns.

    Attributes:
        steps: Steps of reinforcement learning.
        groups, group_size: Of a step.
        draw_budget: Groups that may be drawn to find `groups` that the curriculum admits, as a multiple of `groups`.
        averaging, constant: See `losses.token_weights`.
        old_logprobs: `detached`: the ratio is 1 by construction; `trainer`: recomputed before the first update; `sampler`: as sampled.
        epochs, minibatches: Updates on one batch; minibatches are cut between groups.
        learn: Whether the judge learns before or after it scores; before the policy's update in either case.
        kl_in_reward: Weight of `credit.shaping.charge_kl`; None is off, and no reference is needed for it.
        overlong: Costs of length that the outcome is charged with; None is off.
    """

    steps: int
    groups: int
    group_size: int
    loss: PolicyLoss
    schedule: Schedule
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    averaging: Averaging = "token"
    constant: float | None = None
    old_logprobs: Literal["detached", "trainer", "sampler"] = "detached"
    epochs: int = 1
    minibatches: int = 1
    draw_budget: int = 4
    learn: Literal["before", "after"] = "after"
    kl_in_reward: float | None = None
    overlong: Overlong | None = None
    flat: Literal["stop", "take"] = "stop"
    """Where the draw budget is spent and too few groups are admitted: raise, or take refused ones."""
    ahead: Callable[[int], bool] = never
    """Whether the batch of this 0-based step is sampled while the step before it is learnt from, with weights that are one update old. Not
    the first one behind a checkpoint, which would be another after a resumption."""

    def __post_init__(self) -> None:
        if self.old_logprobs == "detached" and self.epochs * self.minibatches > 1:
            raise ConfigError(
                f"old_logprobs is 'detached' with {self.epochs} epochs x {self.minibatches} minibatches; more than one update on a batch "
                "needs the old log-probs: set loss.old_logprobs to 'trainer'."
            )
        if self.minibatches > self.groups:
            raise ConfigError(
                f"loss.minibatches is {self.minibatches}, rollout.groups is {self.groups}; a minibatch holds at least one group."
            )


class Parts(NamedTuple):
    """What a trainer is made of. `judge` is called once, when reinforcement learning begins: a judge may start as the policy."""

    domain: Domain
    policy: Model
    player: Player
    judge: Callable[[], ProcessReward | RewardLearner]
    assign: Assign
    curriculum: Curriculum
    reference: Callable[[], KeptPolicy] | None = None
    """For a KL term: called when reinforcement learning begins."""
    shaping: Shaping | None = None
    """Of step rewards, between the judge and the credit rule."""
    around: Around | None = None
    """What credit does around interruptions, after the rule."""


class StepResult(NamedTuple):
    """One step: its number over both phases, phase, metrics, and the credited episodes (none while cloning)."""

    step: int
    phase: Literal["clone", "learn"]
    metrics: Metrics
    groups: Sequence[Group[Credited]]


class Trainer:
    """Runs the warm start and the loop, a step at a time; resumable between any two steps.

    Args:
        parts: The components.
        seed: Of the run.
        cloning: The warm start, or None.
        learning: The loop.
    """

    def __init__(self, parts: Parts, *, seed: int, cloning: Cloning | None, learning: Learning) -> None:
        if "reference" in needs_of(parts.assign) and parts.reference is None:
            raise ConfigError("The credit rule needs log-probs under a reference, and there is none; set Parts.reference, say policy.keep.")
        self.parts, self.seed, self.cloning, self.learning = parts, seed, cloning, learning
        self.done = 0
        self.process_weight = 1.0
        self._reward: ProcessReward | RewardLearner | None = None
        self._reference: KeptPolicy | None = None
        self._coming: Future[Batch] | None = None
        if cloning is not None:
            parts.policy.restart_optimizer(cloning.optimizer)

    @property
    def clone_steps(self) -> int:
        return self.cloning.steps if self.cloning is not None else 0

    @property
    def total_steps(self) -> int:
        return self.clone_steps + self.learning.steps

    def run(self) -> Iterator[StepResult]:
        """The steps that are left."""
        while self.done < self.total_steps:
            if self.done < self.clone_steps:
                yield self._clone_step()
            else:
                if self._reward is None:
                    self._begin_learning()
                yield self._learn_step()

    # -- warm start -----------------------------------------------------------------------------------------------------------

    def _clone_step(self) -> StepResult:
        cloning, step, clock = self.cloning, self.done, _Clock()
        assert cloning is not None
        episodes = [cloning.demonstration(step * cloning.batch + i) for i in range(cloning.batch)]
        failed = [e.ending.reason for e in episodes if e.failed]
        if failed:
            raise RunError(f"{len(failed)} of {len(episodes)} demonstrations failed; the first: {failed[0]}")
        weights = token_weights([e.num_tokens for e in episodes], "token")
        rows = [row for i, e in enumerate(episodes) for row in episode_rows(e, index=i, weight=np.full(e.num_tokens, weights[i]))]
        metrics = self.parts.policy.backward(rows, CloningLoss())
        lr = cloning.schedule.at(step, cloning.steps)
        metrics |= {f"cloning/{name}": value for name, value in self.parts.policy.step(lr).items()}
        metrics["cloning/lr"] = lr
        metrics["cloning/demonstrations"] = float((step + 1) * cloning.batch)
        clock.lap("time/clone_s")
        metrics |= clock.laps
        self.done += 1
        return StepResult(step, "clone", metrics, ())

    # -- the loop -------------------------------------------------------------------------------------------------------------

    def _begin_learning(self) -> None:
        """Makes the judge and the reference from the policy as it is now."""
        self.parts.policy.restart_optimizer(self.learning.optimizer)
        self._reward = self.parts.judge()
        self._reference = self.parts.reference() if self.parts.reference is not None else None

    def _learn_step(self) -> StepResult:
        parts, plan, step = self.parts, self.learning, self.done
        reward = self._reward
        assert reward is not None
        at = step - self.clone_steps
        clock = _Clock()
        groups, drawn = self._batch(at)
        clock.lap("time/rollout_s")
        metrics: Metrics = {"rollout/drawn_groups": float(drawn)} | self._lag(groups)
        scored = _judged(reward, groups)
        if isinstance(reward, RewardLearner) and plan.learn == "before":
            metrics |= reward.learn(scored)
            scored = _judged(reward, groups)
        if self._reference is not None:
            scored = _with_reference(scored, self._reference)
        if "old_logprobs" in needs_of(parts.assign):
            scored = _with_old(parts.policy, scored)
        clock.lap("time/score_s")
        charged = plan.overlong(scored) if plan.overlong is not None else scored
        shaped = parts.shaping(charged) if parts.shaping is not None else charged
        credited = parts.assign(shaped)
        _check_complete("The credit rule", groups, [[member.scored.episode for member in group.members] for group in credited or ()])
        if parts.around is not None:
            credited, said = parts.around(credited)
            metrics |= said
        credited = weighed(credited, self.process_weight)
        if parts.shaping is not None:
            credited = with_raw(credited, charged)
            metrics |= shaped_metrics(shaped)
        if plan.kl_in_reward is not None:
            credited = charge_kl(_with_old_credited(parts.policy, credited), plan.kl_in_reward)
        metrics |= credit_metrics(credited) | charge_metrics(scored, charged, credited)
        if isinstance(reward, RewardLearner) and plan.learn == "after":
            metrics |= reward.learn(scored)  # With the policy as it has played: what a head reads of it is there already.
        clock.lap("time/judge_s")
        lr = plan.schedule.at(at, plan.steps)
        metrics |= update(parts.policy, credited, plan, lr=lr, seed=(self.seed, "minibatch", at))
        clock.lap("time/update_s")
        if self._coming is not None:
            wait([self._coming])  # It draws tasks, which what is observed now may change.
            clock.lap("time/ahead_s")
        metrics |= parts.curriculum.observe(groups)
        metrics |= clock.laps
        self.done += 1
        return StepResult(step, "learn", metrics, credited)

    def _batch(self, at: int) -> Batch:
        """The groups of a step, sampled now or while the last step was learnt from; begins with those of the next one."""
        coming, self._coming = self._coming, None
        batch = coming.result() if coming is not None else collect(self.parts, self.learning, (self.seed, "rollout", at), at)
        later, model = at + 1, self.parts.policy
        if later < self.learning.steps and self.learning.ahead(later):
            if not isinstance(model, SamplesAhead):
                raise ConfigError(
                    "The policy's weights cannot sample while they are learnt (Learning.ahead); use a remote engine, or leave it."
                )
            self._coming = Future()
            told = (self._coming, self.parts, self.learning, (self.seed, "rollout", later), later, model.ahead())
            Thread(target=_collect_for, args=told, daemon=True).start()
        return batch

    def _lag(self, groups: Sequence[Group[Episode]]) -> Metrics:
        """Updates between the weights that sampled a turn and the present ones."""
        now = self.parts.policy.version
        lags = [now - turn.version for group in groups for episode in group.members for turn in episode.turns]
        return {"rollout/lag": float(np.mean(lags))} if lags else {}

    def judge(self) -> ProcessReward | RewardLearner | None:
        """The reward, once reinforcement learning has begun."""
        return self._reward

    # -- state ----------------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, Saveable]:
        """Everything with weights, by name."""
        made: dict[str, Saveable] = {"policy": self.parts.policy}
        if isinstance(self._reward, RewardLearner):
            made |= self._reward.models()
        if self._reference is not None:
            made["reference"] = self._reference
        return made

    def state(self) -> dict[str, JSON]:
        """All else that the next step depends on."""
        reward = self._reward.state() if isinstance(self._reward, RewardLearner) else {}
        return {
            "done": self.done,
            "learning": self._reward is not None,
            "curriculum": self.parts.curriculum.state(),
            "reward": reward,
            "shaping": self._shaping_state(),
            "process_weight": self.process_weight,
        }

    def _shaping_state(self) -> dict[str, JSON]:
        return self.parts.shaping.state() if self.parts.shaping is not None else {}

    def restore(self, state: Mapping[str, JSON], load: Callable[[Mapping[str, Saveable]], None]) -> None:
        """Goes on from `state`; `load` restores the weights of `models()`."""
        done, curriculum = state["done"], state["curriculum"]
        assert isinstance(done, int) and isinstance(curriculum, dict)
        self.done = done
        if state["learning"]:
            self._begin_learning()
        self._take(state, load)
        self.parts.curriculum.restore(curriculum)
        weight = state.get("process_weight", 1.0)
        assert isinstance(weight, int | float)
        self.process_weight = float(weight)

    def go_back(self, state: Mapping[str, JSON], load: Callable[[Mapping[str, Saveable]], None]) -> None:
        """Takes the weights of an earlier step of learning; steps, curriculum and the weight of the process part go on as they are.

        Raises:
            RunError: The state is one from before reinforcement learning: it has no judge to go back to.
        """
        if not state["learning"] or self._reward is None:
            raise RunError("The checkpoint is from before reinforcement learning; only one of its own steps can be gone back to.")
        self._take(state, load)

    def _take(self, state: Mapping[str, JSON], load: Callable[[Mapping[str, Saveable]], None]) -> None:
        """Weights, and the states of shaping and judge."""
        self._coming = None  # Of weights that are no more.
        load(self.models())
        shaping, reward = state.get("shaping"), state["reward"]
        assert isinstance(reward, dict)
        if self.parts.shaping is not None and isinstance(shaping, Mapping):
            self.parts.shaping.restore(shaping)
        if isinstance(self._reward, RewardLearner):
            self._reward.restore(reward)


Batch = tuple[list[Group[Episode]], int]
"""Groups, and how many were drawn to find them."""


def collect(parts: Parts, plan: Learning, seed: tuple[int | str, ...], step: int, policy: Policy | None = None) -> Batch:
    """Draws and plays tasks until `plan.groups` groups are admitted; by the present weights, or by a policy.

    Returns:
        the groups, and how many were drawn.

    Raises:
        RunError: The draw budget is spent; says what was found and what to change (U73).
    """
    policy = parts.policy.snapshot() if policy is None else policy
    admitted: list[Group[Episode]] = []
    refused: list[Group[Episode]] = []
    drawn = 0
    while len(admitted) < plan.groups:
        wanted = plan.groups - len(admitted)
        if drawn + wanted > plan.draw_budget * plan.groups:
            if plan.flat == "take" and len(admitted) + len(refused) >= plan.groups:
                return [*admitted, *refused[:wanted]], drawn
            raise RunError(_too_few(step, drawn, len(admitted), refused, plan))
        tasks = parts.curriculum.draw(wanted, step)
        if not tasks or len(tasks) != wanted:
            raise ContractViolation(f"The curriculum drew {len(tasks or ())} tasks where {wanted} were asked for; draw(n, step) returns n.")
        played = rollout(parts.domain, tasks, policy, parts.player, group_size=plan.group_size, seed=(*seed, drawn))
        _check_alive(played, step)
        drawn += wanted
        for group in played:
            (admitted if parts.curriculum.admit(group) else refused).append(group)
    return admitted, drawn


def _collect_for(asked: Future[Batch], parts: Parts, plan: Learning, seed: tuple[int | str, ...], step: int, policy: Policy) -> None:
    """`collect` in a thread; whatever it raises is raised by who asks for the result."""
    try:
        asked.set_result(collect(parts, plan, seed, step, policy))
    except BaseException as error:
        asked.set_exception(error)


def _too_few(step: int, drawn: int, admitted: int, refused: Sequence[Group[Episode]], plan: Learning) -> str:
    """What was found, and what to change (U73)."""
    outcomes = [[bool(e.verdict.success) for e in group.members if not e.failed and e.verdict.success is not None] for group in refused]
    solved, failed = sum(bool(one) and all(one) for one in outcomes), sum(bool(one) and not any(one) for one in outcomes)
    tasks = (
        "Tasks are too easy: lower the success by a harder curriculum.difficulty"
        if solved > 2 * failed
        else "Tasks are too hard: raise the success by an easier curriculum.difficulty or a longer warm start"
        if failed > 2 * solved
        else "Tasks are all too easy or all too hard: change curriculum.difficulty"
    )
    return (
        f"Step {step}: {drawn} groups were drawn and {admitted} admitted by the curriculum; {plan.groups} are needed within "
        f"a draw budget of {plan.draw_budget} x {plan.groups}. Of those refused, all episodes succeed in {solved} and none in {failed}. "
        f"{tasks}, loosen its filter (curriculum.admit), raise rollout.draw_budget, or train on refused groups (curriculum.flat=take)."
    )


def _judged(reward: ProcessReward, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
    scored = reward.score(groups)
    _check_complete("The judge", groups, [[member.episode for member in group.members] for group in scored or ()])
    return scored


def _check_complete(who: str, groups: Sequence[Group[Episode]], made: Sequence[Sequence[Episode]]) -> None:
    """An episode that a part of the user's drops would be missing from the gradient without a word."""
    wanted = [[(group.task.key, episode.member) for episode in group.members] for group in groups]
    if [[(episode.task.key, episode.member) for episode in members] for members in made] != wanted:
        raise ContractViolation(
            f"{who} returned {sum(map(len, made))} episodes in {len(made)} groups for {sum(map(len, wanted))} in {len(wanted)}, or others; "
            "it must return every episode, in the same groups and order."
        )


def _check_alive(played: Sequence[Group[Episode]], step: int) -> None:
    """A dead environment must not look like a step in which nothing was learnt (U74)."""
    episodes = [episode for group in played for episode in group.members]
    if all(episode.failed for episode in episodes):
        raise RunError(f"Step {step}: all {len(episodes)} episodes failed; nothing can be learnt. The first: {episodes[0].ending.reason}")


def update(policy: Model, groups: Sequence[Group[Credited]], plan: Learning, *, lr: float, seed: tuple[int | str, ...]) -> Metrics:
    """Epochs x minibatches of policy updates on one batch; returns means over the updates."""
    groups = _with_old_credited(policy, groups) if plan.old_logprobs == "trainer" else groups
    old = _sampled if plan.old_logprobs == "sampler" else _old
    loss = Watched(plan.loss)
    metrics: list[Metrics] = []
    for epoch in range(plan.epochs):
        order = generator(*seed, epoch).permutation(len(groups)) if plan.minibatches > 1 else np.arange(len(groups))
        for picked in np.array_split(order, plan.minibatches):
            rows = policy_rows([groups[i] for i in sorted(picked)], lambda n: token_weights(n, plan.averaging, constant=plan.constant), old)
            made = policy.backward(_pulling(rows, plan.loss) or rows, loss)  # Where nothing pulls, all are measured; the update is empty.
            stepped = policy.step(lr)
            metrics.append(made | {f"policy/{name}": value for name, value in stepped.items()})
    total = {name: float(np.mean([m[name] for m in metrics if name in m])) for m in metrics for name in m}
    if "sampler/mismatch_ms" in total:
        total["sampler/mismatch_rms"] = math.sqrt(total.pop("sampler/mismatch_ms"))
    total["policy/lr"] = lr
    return total


def _pulling(rows: Sequence[Row], loss: PolicyLoss) -> list[Row]:
    """The rows worth computing: without those where every advantage is 0 and no other term pulls, which change nothing.

    A loss that spans rows needs all of an episode of which one row pulls.
    """
    if loss.kl_coef or loss.entropy_coef:
        return list(rows)
    pulls = [bool(np.any(row.advantage != 0)) for row in rows]
    episodes = {row.episode for row, pull in zip(rows, pulls, strict=True) if pull}
    return [row for row, pull in zip(rows, pulls, strict=True) if pull or (loss.spans_rows and row.episode in episodes)]


def _sampled(scored: Scored) -> Floats:
    return scored.episode.logprobs_T


def _old(scored: Scored) -> Floats:
    return scored.episode.logprobs_T if scored.old_logprobs_T is None else scored.old_logprobs_T


def _token_logprobs(policy: Policy, episodes: Sequence[Episode]) -> list[Floats]:
    """Log-probs of each episode's sampled tokens by the trainer's forward path. [T] each"""
    rows = [episode_rows(episode) for episode in episodes]
    return join(policy.logprobs([row for made in rows for row in made]), [len(made) for made in rows])


def _with_reference(groups: Sequence[Group[Scored]], reference: Policy) -> list[Group[Scored]]:
    found = iter(_token_logprobs(reference, [member.episode for group in groups for member in group.members]))
    return [Group(group.task, tuple(replace(member, ref_logprobs_T=next(found)) for member in group.members)) for group in groups]


def _with_old(model: Model, groups: Sequence[Group[Scored]]) -> list[Group[Scored]]:
    """Attaches the trainer's log-probs where no earlier stage has."""
    missing = [member.episode for group in groups for member in group.members if member.old_logprobs_T is None]
    found = iter(_token_logprobs(model.snapshot(), missing) if missing else ())

    def attach(member: Scored) -> Scored:
        return member if member.old_logprobs_T is not None else replace(member, old_logprobs_T=next(found))

    return [Group(group.task, tuple(attach(member) for member in group.members)) for group in groups]


def _with_old_credited(model: Model, groups: Sequence[Group[Credited]]) -> list[Group[Credited]]:
    scored = _with_old(model, [Group(group.task, tuple(member.scored for member in group.members)) for group in groups])
    return [
        Group(group.task, tuple(replace(member, scored=known) for member, known in zip(group.members, with_old.members, strict=True)))
        for group, with_old in zip(groups, scored, strict=True)
    ]


class _Clock:
    """Seconds of each part of a step."""

    def __init__(self) -> None:
        self.laps: Metrics = {}
        self._last = self._start = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self.laps["time/step_s"] = now - self._start
        self._last = now
