"""What a judge that sees outcomes alone learns of a cave, beside the exact advantage of every move: `python examples/exact_values.py`"""

from collections import defaultdict

import numpy as np

from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.table import TableEngine
from stepwell.envs.cave import Cave, CaveDomain
from stepwell.envs.exact import episode_advantages, explore, optimal_values, policy_values, uniform
from stepwell.protocols import ModelSpec
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rollout import Limits, Player, rollout
from stepwell.types import Sampling

TURNS = 3
CAVE = Cave(("hall", "pit", "vault", "well"), ((1, 2), (2, None), (3, 1), (None, None)), (0.0, 0.3, 0.6, 1.0))


def main() -> None:
    domain, task = CaveDomain(), CAVE.task("mine")
    graph = explore(domain, task, BRACKET.parse, turns=TURNS)
    chance = policy_values(graph, uniform)
    print(f"{task.prompt}\nvalue of the entrance: {chance.start:.3f} by chance, {optimal_values(graph).start:.3f} at best")

    tokenizer = SpokenTokenizer(("left[]", "right[]", "stop[]"))  # a move is a token, and a policy is a table of their logits
    chat = Chat.of(tokenizer)
    engine = TableEngine(len(tokenizer.words), Text(tokenizer.decode, chat.eos_ids))
    policy = engine.model("policy", ModelSpec())
    player = Player(chat, BRACKET, Sampling(max_tokens=1), Limits(turns=TURNS, context=1000))
    judge = ImplicitReward(engine.model("judge", ModelSpec(of="policy")), policy, ImplicitSettings(pay="score", lr=0.03))
    for step in range(40):
        groups = rollout(domain, [task] * 4, policy.snapshot(), player, group_size=8, seed=("exact", step))
        scored = judge.score(groups)
        judge.learn(scored)

    said = defaultdict(list)
    for episode, rewards in ((member.episode, member.process_S) for group in scored for member in group.members):
        advantages, known = episode_advantages(chance, episode)
        for turn in np.flatnonzero(known):
            said[round(float(advantages[turn]), 3), episode.turns[turn].text].append(float(rewards[turn]))
    exact, judged = [advantage for advantage, _ in sorted(said)], [float(np.mean(said[key])) for key in sorted(said)]
    for (advantage, move), reward in zip(sorted(said), judged, strict=True):
        print(f"{move:8} exact advantage {advantage:+.3f}   judge {reward:+.3f}")
    ranks = np.argsort(np.argsort(exact)), np.argsort(np.argsort(judged))
    print(f"rank correlation {np.corrcoef(*ranks)[0, 1]:.2f}")


if __name__ == "__main__":
    main()
