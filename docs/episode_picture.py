"""Writes docs/assets/episode.svg, the README's picture: `python docs/episode_picture.py RUN`, RUN being a finished run of `quick`.

It takes, from the last recorded steps, the success of a group with failures whose steps differ most in advantage.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from stepwell.show import Query, episode_svg, find
from stepwell.tracking import EpisodeRecord, episode_steps

PICTURE = Path(__file__).parent / "assets" / "episode.svg"
MAX_TURNS = 6
LAST_STEPS = 10


def main() -> None:
    """Writes the picture and says what it shows."""
    run = Path(sys.argv[1])
    episodes = [episode for step in episode_steps(run)[-LAST_STEPS:] for episode in find(run, Query(step=step))]
    chosen = choose(episodes)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(self_contained(episode_svg(chosen, title="stepwell show", width=104, lines=6)), encoding="utf-8")
    print(f"{PICTURE}: step {chosen.step}, {chosen.key}, member {chosen.member}, {len(chosen.turns)} turns")


def choose(episodes: list[EpisodeRecord]) -> EpisodeRecord:
    """The success of a mixed group, short enough for a picture, whose advantages spread most."""
    groups = defaultdict(list)
    for episode in episodes:
        groups[episode.step, episode.key].append(episode)
    mixed = [group for group in groups.values() if len({episode.success for episode in group}) > 1]
    good = [episode for group in mixed for episode in group if episode.success and 3 <= len(episode.turns) <= MAX_TURNS]
    return max(good or episodes, key=spread)


def spread(episode: EpisodeRecord) -> float:
    """Largest minus smallest advantage."""
    advantages = [step.advantage for step in episode.steps if step.advantage is not None] or [0.0]
    return max(advantages) - min(advantages)


def self_contained(svg: str) -> str:
    """Without fonts from other servers: the viewer's own monospaced font is used."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: Fira Code(, monospace)?", "font-family: ui-monospace, Menlo, Consolas, monospace", svg)


if __name__ == "__main__":
    main()
