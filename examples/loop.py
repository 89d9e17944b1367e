"""The loop, stage by stage, as it stands in the trainer: `python examples/loop.py`"""

import stepwell
from stepwell.build import build
from stepwell.credit import IStar, Standardised, credit_metrics
from stepwell.protocols import ModelSpec
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rollout import rollout
from stepwell.seeding import derive
from stepwell.trainer import update

SHOWN = ("credit/outcome", "policy/entropy", "policy/grad_norm", "judge/fresh_pair_accuracy")


def main() -> None:
    settings = "steps=0 cloning.steps=100 cloning.optimizer.lr=0.01 cloning.optimizer.warmup=5 "
    settings += "engine.width=96 engine.feedforward=192 engine.threads=1 domain.products=100"
    config = stepwell.load("smoke", settings.split())
    built = build(config)
    domain, player, policy = built.domain, built.speaker.player, built.policy
    for result in built.trainer.run():  # steps=0: the warm start alone
        if result.step % 50 == 49:
            print("warm start", result.step + 1, {"cloning/loss": round(result.metrics["cloning/loss"], 3)})

    policy.restart_optimizer(built.trainer.learning.optimizer)
    judge = ImplicitReward(built.speaker.engine.model("judge", ModelSpec(of="policy")), policy, ImplicitSettings(lr=1e-4))
    assign = IStar(Standardised(), alpha=0.1)
    for step in range(4):
        tasks = [domain.task(0.0, derive("loop", step, slot), "train") for slot in range(8)]
        groups = rollout(domain, tasks, policy.snapshot(), player, group_size=8, seed=("loop", step))  # draw and act
        scored = judge.score(groups)  # judge every step
        credited = assign(scored)  # say who earned it
        metrics = credit_metrics(credited)
        metrics |= update(policy, credited, built.trainer.learning, lr=5e-4, seed=("loop", step))  # learn to act
        metrics |= judge.learn(scored)  # learn to judge
        print(step, {name: round(metrics[name], 3) for name in SHOWN if name in metrics})


if __name__ == "__main__":
    main()
