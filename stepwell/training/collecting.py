"""The episodes of a step: tasks are drawn and played until enough groups are admitted."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from stepwell.errors import ContractViolation, RunError
from stepwell.protocols import Policy
from stepwell.rollout import rollout
from stepwell.training.plan import Learning, Parts
from stepwell.types import Episode, Group

__all__ = ["Batch", "collect", "collect_for"]

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


def collect_for(asked: Future[Batch], parts: Parts, plan: Learning, seed: tuple[int | str, ...], step: int, policy: Policy) -> None:
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


def _check_alive(played: Sequence[Group[Episode]], step: int) -> None:
    """A dead environment must not look like a step in which nothing was learnt (U74)."""
    episodes = [episode for group in played for episode in group.members]
    if all(episode.failed for episode in episodes):
        raise RunError(f"Step {step}: all {len(episodes)} episodes failed; nothing can be learnt. The first: {episodes[0].ending.reason}")
