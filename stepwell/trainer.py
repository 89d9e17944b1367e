"""The loop: draw, act, judge, credit, learn.

Tracking, checkpoints and evaluation live outside (`stepwell.run`). All that a step draws is seeded by (run seed, what for, step, ...).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import Literal, NamedTuple

import numpy as np

from stepwell.credit import credit_metrics, needs_of
from stepwell.credit.process_weight import weighed
from stepwell.credit.reshape import shaped_metrics, with_raw
from stepwell.credit.shaping import charge_kl, charge_metrics
from stepwell.engine.batch import episode_rows
from stepwell.errors import ConfigError, ContractViolation, RunError
from stepwell.losses import CloningLoss, token_weights
from stepwell.protocols import (
    KeptPolicy,
    ProcessReward,
    RewardLearner,
    SamplesAhead,
    Saveable,
)
from stepwell.training.collecting import Batch, collect, collect_for
from stepwell.training.plan import Cloning, Learning, Parts, Schedule
from stepwell.training.updating import update, with_old, with_old_credited, with_reference
from stepwell.types import JSON, Credited, Episode, Group, Metrics, Scored

__all__ = ["Cloning", "Learning", "Parts", "Schedule", "StepResult", "Trainer", "collect", "update"]


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
            scored = with_reference(scored, self._reference)
        if "old_logprobs" in needs_of(parts.assign):
            scored = with_old(parts.policy, scored)
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
            credited = charge_kl(with_old_credited(parts.policy, credited), plan.kl_in_reward)
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
            Thread(target=collect_for, args=told, daemon=True).start()
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
