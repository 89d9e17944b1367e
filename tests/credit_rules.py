"""Every credit rule, with what holds for it: a new rule is tested by being listed here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stepwell.credit import (
    GAE,
    Adaptive,
    Centred,
    Counterfactual,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    Raw,
    ReinforcePlusPlus,
    RePIRL,
    Rule,
    Standardised,
    SuffixLogRatio,
    Whitened,
)
from stepwell.types import Episode, Group, Observation, Scored


@dataclass(frozen=True)
class Listed:
    """A rule and what is claimed of it.

    Attributes:
        rule: With alpha or beta 1 where it has one.
        doubled: The same with twice the weight of the process part, where that part is proportional to it.
        across: Whether groups of a batch see each other (whitening, units of the batch).
        compares: Whether equal outcomes give no outcome part.
        reads_rewards: Whether it reads process rewards.
    """

    name: str
    rule: Rule
    doubled: Rule | None = None
    across: bool = False
    compares: bool = True
    reads_rewards: bool = True


def replayed(episode: Episode, turn: int) -> float | None:
    """A world in which odd turns matter and the third cannot be left out."""
    if turn == 2:
        return None
    return 0.0 if turn % 2 else episode.verdict.score


RULES = (
    Listed("grpo", OutcomeOnly(), reads_rewards=False),
    Listed("drgrpo", OutcomeOnly(Centred()), reads_rewards=False),
    Listed("rloo", OutcomeOnly(LeaveOneOut()), reads_rewards=False),
    Listed("reinforce", OutcomeOnly(Raw()), reads_rewards=False, compares=False),
    Listed("drgrpo, scale of the batch", OutcomeOnly(Centred(), "batch"), across=True, reads_rewards=False),
    Listed("istar", IStar(only_mixed=False), IStar(alpha=2.0, only_mixed=False)),
    Listed("istar, mixed groups", IStar(), IStar(alpha=2.0)),
    Listed("istar, centred", IStar(LeaveOneOut(), 1.0, Centred()), IStar(LeaveOneOut(), 2.0, Centred())),
    Listed("process_to_go", ProcessToGo(), ProcessToGo(alpha=2.0)),
    Listed("process_to_go, discounted", ProcessToGo(None, discount=0.9), ProcessToGo(None, 2.0, discount=0.9)),
    Listed("process_supervision", ProcessSupervision(), ProcessSupervision(alpha=2.0)),
    Listed("process_supervision with outcome", ProcessSupervision(LeaveOneOut()), ProcessSupervision(LeaveOneOut(), 2.0)),
    Listed("prime", Prime(), Prime(2.0)),
    Listed("prime, released", Prime(form="released", discount=0.9), Prime(2.0, form="released", discount=0.9)),
    Listed("prime, unit of the batch", Prime(unit="largest_return"), Prime(2.0, unit="largest_return"), across=True),
    Listed("prime, whitened", Whitened(Prime()), across=True, compares=False),
    Listed("repirl", RePIRL(1.0), RePIRL(2.0)),
    Listed("repirl, raw", RePIRL(1.0, alone="raw"), RePIRL(2.0, alone="raw"), compares=False),
    Listed("repirl, deviation", RePIRL(1.0, step_baseline=Standardised()), RePIRL(2.0, step_baseline=Standardised())),
    Listed("prime, whitened apart", Whitened(Prime(), apart=0.5), across=True, compares=False),
    Listed("repirl, whitened", Whitened(RePIRL(0.05, unit="largest_return")), across=True, compares=False),
    Listed("reinforce_pp", ReinforcePlusPlus(discount=0.9), across=True, compares=False),
    Listed("reinforce_pp_baseline", Whitened(OutcomeOnly(Centred())), across=True, reads_rewards=False),
    Listed("gigpo", GiGPO(), GiGPO(alpha=2.0), reads_rewards=False),
    Listed("gigpo, process", GiGPO(Centred(), 1.0, Centred(), pays="process"), GiGPO(Centred(), 2.0, Centred(), pays="process")),
    Listed("gigpo, both", GiGPO(step_baseline=LeaveOneOut(), pays="both"), GiGPO(alpha=2.0, step_baseline=LeaveOneOut(), pays="both")),
    Listed("min_form", MinForm(), MinForm(alpha=2.0)),
    Listed("min_form, hard", MinForm(None, temperature=0.0), MinForm(None, 2.0, temperature=0.0)),
    Listed("suffix", SuffixLogRatio(beta=1.0), SuffixLogRatio(beta=2.0), reads_rewards=False),
    Listed("suffix, last", SuffixLogRatio(Centred(), 1.0, "last"), SuffixLogRatio(Centred(), 2.0, "last"), reads_rewards=False),
    Listed("counterfactual", Counterfactual(replayed), Counterfactual(replayed, alpha=2.0), reads_rewards=False),
    Listed("adaptive", Adaptive(IStar(only_mixed=False)), Adaptive(IStar(alpha=2.0, only_mixed=False))),
    Listed("adaptive to go", Adaptive(ProcessToGo()), Adaptive(ProcessToGo(alpha=2.0))),
    Listed("gae", GAE(lam=0.9), GAE(lam=0.9, alpha=2.0), compares=False),
    Listed("gae, whitened", Whitened(GAE()), across=True, compares=False),
    Listed("istar, own noise floor", IStar(Standardised(0, 0.1), 1.0, Standardised(0, 0.1)), across=False),
)


def ready(member: Scored) -> Scored:
    """With everything that any rule needs: states, reference and old log-probs, values, a confidence."""
    episode = member.episode
    turns = tuple(
        replace(t, reply=replace(t.reply, observation=Observation("seen", ("A", "B", "")[i % 3]))) for i, t in enumerate(episode.turns)
    )
    new = replace(episode, start=Observation("start", "A"), turns=turns)
    tokens = np.arange(episode.num_tokens)
    old = new.logprobs_T - 0.01 * tokens
    values = np.where(member.steps.lengths_S > 0, 0.3 * np.cos(np.arange(len(member.steps))), 0.0)
    return replace(member, episode=new, ref_logprobs_T=old - 0.1 * np.cos(tokens), old_logprobs_T=old, values_S=values, confidence=0.8)


def ready_group(group: Group[Scored]) -> Group[Scored]:
    return Group(group.task, tuple(ready(member) for member in group.members))
