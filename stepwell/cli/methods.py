"""What can be chosen as reward, credit and loss, and where it comes from."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["METHODS", "Method"]


class Method(NamedTuple):
    """One choice.

    Attributes:
        section: Of the config.
        setting: What chooses it.
        summary: One line.
        source: Where it is from; "" where it is nobody's.
    """

    section: str
    setting: str
    summary: str
    source: str


_ISTAR, _PRIME = "iStar, arXiv 2509.19199", "PRIME, arXiv 2502.01456"
_GRPO, _DRGRPO, _RLOO = "GRPO, arXiv 2402.03300", "Dr.GRPO, arXiv 2503.20783", "RLOO, arXiv 2402.14740"
_REINFORCE_PP, _PRL = "REINFORCE++, arXiv 2501.03262", "PRL and FRPO, arXiv 2601.10201"
_SHEPHERD, _AGENTPRM = "Math-Shepherd, arXiv 2312.08935", "AgentPRM, arXiv 2502.10325"
_GAE = "GAE, arXiv 1506.02438, and PPO, arXiv 1707.06347"
_PPO, _GSPO, _DAPO = "PPO, arXiv 1707.06347", "GSPO, arXiv 2507.18071", "DAPO, arXiv 2503.14476"
_CISPO, _TIS = "MiniMax-M1, arXiv 2506.13585", "Ionides 2008, Truncated importance sampling"
_KL = "Schulman 2020, Approximating KL divergence"
_REPIRL, _REGAIL = "rePIRL, arXiv 2602.07832", "ReGAIL, arXiv 2510.01857, and AIRL, arXiv 1710.11248"
_INVERSE_Q = "InversePRM, arXiv 2502.10325, and IQ-Learn, arXiv 2106.12142"

METHODS: tuple[Method, ...] = (
    Method("reward", "reward.kind=outcome", "the end alone is paid", ""),
    Method("reward", "reward.kind=environment", "the environment's own reward of every step, beside the outcome", ""),
    Method("reward", "reward.kind=environment reward.steps=progress", "an oracle: what the step changed in how far the task is done", ""),
    Method("reward", "reward.kind=implicit", "log-ratio of a judge, co-trained by preference, to the policy that sampled", _ISTAR),
    Method("reward", "reward.kind=implicit reward.reference=frozen", "the same, to the judge's own weights at the start", _PRIME),
    Method("reward", "reward.kind=implicit reward.objective=cross_entropy", "the same judge, taught by every outcome for itself", _PRIME),
    Method("reward", "reward.kind=inverse", "what would have to be rewarded for experts to do what they do", _REPIRL),
    Method("reward", "reward.kind=inverse reward.objective=discriminator", "which steps look like an expert's", _REGAIL),
    Method("reward", "reward.kind=inverse reward.objective=iq", "the same, with rewards implied by action values", _INVERSE_Q),
    Method("reward", "reward.kind=inverse reward.model=full", "rePIRL with the log-ratio of a second language model", _REPIRL),
    Method("reward", "reward.kind=montecarlo", "how often the policy succeeds when it goes on from the step", _SHEPHERD),
    Method("reward", "reward.kind=montecarlo reward.source=visits", "what episodes of the group came to that share the step", _AGENTPRM),
    Method(
        "reward",
        "reward.kind=montecarlo reward.judge=head",
        "a scalar head fitted to such estimates, which scores in their place",
        _SHEPHERD,
    ),
    Method(
        "reward", "reward.kind=temporal", "what a step changed, by temporal differences on plain episodes", "AgentPRM, arXiv 2511.08325"
    ),
    Method("reward", "reward.kind=labelled reward.data=FILE", "a judge fitted to steps that somebody has labelled", _SHEPHERD),
    Method("reward", "reward.kind=trained reward.run=DIR", "the judge of another run, also with another model and tokenizer", ""),
    Method(
        "reward",
        "reward.kind=mixture reward.judges.a.kind=implicit reward.judges.b.kind=temporal reward.weights.b=0.5",
        "several judges at once, each with a weight",
        "",
    ),
    Method(
        "reward",
        "reward.kind=soft_q",
        "log-ratio of a judge that comes to be the soft-optimal policy, with values",
        "DQO, arXiv 2410.09302",
    ),
    Method("reward", "reward.kind=entropy", "a price for leaving the policy at the start, from the step on", _PRL),
    Method("reward", "reward.kind=entropy reward.form=immediate", "the same for the step's own tokens alone: a baseline", ""),
    Method("reward", "reward.kind=entropy reward.split=uniform", "the outcome handed out in equal shares: a baseline", ""),
    Method("reward", "reward.kind=intrinsic", "how sure the policy is of what it says; collapses: a baseline", "self-certainty"),
    Method("credit", "credit.kind=grpo", "outcomes of a group, centred and divided by their standard deviation", _GRPO),
    Method("credit", "credit.kind=drgrpo", "outcomes of a group, centred", _DRGRPO),
    Method("credit", "credit.kind=rloo", "an outcome minus the mean of the others of its group", _RLOO),
    Method("credit", "credit.kind=istar", "the outcome's advantage plus alpha x the step reward's", _ISTAR),
    Method("credit", "credit.kind=process_to_go", "the outcome's advantage plus alpha x the centred step rewards to come", ""),
    Method("credit", "credit.kind=drgrpo credit.scale=batch", "outcomes less their group's mean, in units of the batch's deviation", "TRL"),
    Method("credit", "credit.kind=reinforce_pp", "all rewards to come, whitened over the batch", _REINFORCE_PP),
    Method("credit", "credit.kind=reinforce_pp_baseline", "outcomes less their group's mean, whitened over the batch", _REINFORCE_PP),
    Method("credit", "credit.kind=process_supervision", "standardised step rewards, summed to the end", "DeepSeekMath, arXiv 2402.03300"),
    Method("credit", "credit.kind=prime", "step rewards to come, less what a step of the others earned on average", _PRIME),
    Method("credit", "credit.kind=repirl", "rewards to come, against those still going at the same step", _REPIRL),
    Method("credit", "credit.kind=gigpo", "the outcome's advantage, and turns from the same state compared", "GiGPO, arXiv 2505.10978"),
    Method("credit", "credit.kind=min_form", "an episode is worth what its worst step is", "PURE, arXiv 2504.15275"),
    Method("credit", "credit.kind=suffix", "the outcome's advantage, less a price for leaving the policy at the start", _PRL),
    Method("credit", "credit.kind=counterfactual", "the outcome's advantage, and what leaving the turn out of a replay costs", ""),
    Method("credit", "credit.kind=istar credit.mix=adaptive", "step rewards count as far as the judge has been right", ""),
    Method("credit", "credit.kind=gae", "PPO: what a turn earned against what a critic expected of it", _GAE),
    Method("credit", "credit.kind=gae credit.level=token", "the same for every sampled token", _GAE),
    Method("loss", "loss.ratio=token", "clipped surrogate, one ratio for each token", _PPO),
    Method("loss", "loss.ratio=step loss.pooling=sum", "clipped surrogate, one ratio for each step", _ISTAR),
    Method("loss", "loss.ratio=episode", "clipped surrogate, one ratio for each episode: the mean over its tokens", _GSPO),
    Method("loss", "loss.clip_high=0.28", "a clip that is wider above than below", _DAPO),
    Method("loss", "loss.dual_clip=3", "a surrogate that is bounded for bad tokens too", "dual clip, arXiv 1912.09729"),
    Method("loss", "loss.surrogate=cispo loss.clip_low=1", "the clip bounds a token's weight and never stops it", _CISPO),
    Method("loss", "loss.surrogate=reinforce", "log-prob times advantage, without a ratio", "REINFORCE, Williams 1992"),
    Method("loss", "loss.correction=truncate", "tokens weighted by trainer's over sampler's probability, with a cap", _TIS),
    Method("loss", "loss.correction=mask", "the same without a cap, and without episodes on which the two differ much", "OpenRLHF"),
    Method("loss", "loss.kl=k1 loss.kl_in=reward", "steps pay for the divergence that they lead to", _KL),
    Method("loss", "loss.kl=k2", "half the squared log-ratio to the policy at the start: the gradient of the divergence", _KL),
    Method("loss", "loss.kl=k3", "unbiased and never negative as a value; the estimator of GRPO", _KL),
    Method("loss", "loss.kl=k1+", "the log-ratio as value, with the gradient of k2", _KL),
    Method("loss", "loss.kl=k3+", "the value of k3 with the gradient of k2", _KL),
    Method("loss", "loss.kl=k1x", "the log-ratio weighted by the probability ratio: exact over several updates", _KL),
    Method("loss", "loss.kl=k3x", "k3 weighted by the probability ratio: exact over several updates", "DeepSeek-V3.2, arXiv 2512.02556"),
    Method("loss", "loss.overlong_limit=20480", "episodes near a limit of tokens lose some of their outcome", _DAPO),
    Method("loss", "loss.averaging=token", "every token counts alike", _DAPO),
    Method("loss", "loss.averaging=episode", "every episode counts alike", _GRPO),
    Method("loss", "loss.averaging=constant loss.constant=64", "tokens are summed in a fixed unit", _DRGRPO),
)
