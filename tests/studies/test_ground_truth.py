"""The study of judges against exact truth: its worlds are the real ones, its numbers those of the definition, and it can be resumed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "ground_truth"))

from truth import measures, parts, plan
from truth.arms import JUDGES, Oracle, Stage, judge_of, rule_of
from truth.cells import BEGIN, Cell, start_of, trail_of
from truth.loop import BATCH, train
from truth.records import Job, finish, read_all
from truth.report import write_report
from truth.results import Arm, ratio
from truth.trail import Trail, TrailDomain
from truth.weighting import meetings
from truth.world import SEES, Grader, Player, StudyError, World

from stepwell.credit import needs_of
from stepwell.envs.cave import CaveDomain
from stepwell.envs.exact import State, policy_values, soft_values, trajectories, uniform
from stepwell.envs.maze import MazeDomain
from stepwell.protocols import Domain, OptimizerSpec
from stepwell.rollout import Prefix
from stepwell.testing import check_environment
from stepwell.types import Floats

TRAIL, MAZE, CAVE = Cell(5, "common"), Cell(6, kind="maze"), Cell(4, "graded", kind="cave")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def player(cell: Cell, seed: int = 0) -> Player:
    start = start_of(cell, seed)
    model = start.world.policy(start.world.engine(SEES["view"]), start.policy_XA, OptimizerSpec())
    return Player(start.world, model, cell.grader, np.random.default_rng(seed))


def domain_of(cell: Cell) -> Domain:
    if cell.kind == "maze":
        return MazeDomain(view="place")
    return CaveDomain() if cell.kind == "cave" else TrailDomain(trail_of(cell))


# -- worlds -------------------------------------------------------------------------------------------------------------------


def test_the_trail_keeps_the_contract() -> None:
    domain = TrailDomain(Trail((0, 1, 2), 2))
    check_environment(domain, domain.task())


@pytest.mark.parametrize("cell", [TRAIL, MAZE, CAVE])
def test_an_episode_in_arrays_is_one_of_the_real_environment(cell: Cell) -> None:
    playing = player(cell)
    for episode in playing.play(2, 4)[0].members:
        environment = domain_of(cell).environment(episode.task, episode.member)
        assert environment.start().text == episode.start.text
        for turn in episode.turns:
            reply = environment.step(turn.action)
            seen, said = reply.observation, turn.reply.observation
            assert (reply.reward, reply.done, reply.valid, seen.text, seen.state_key) == (
                turn.reply.reward,
                turn.reply.done,
                turn.reply.valid,
                said.text,
                said.state_key,
            )
        assert episode.turns[-1].reply.done or len(episode.turns) == cell.horizon
        assert episode.verdict.score == domain_of(cell).grade(episode).score


@pytest.mark.parametrize("cell", [TRAIL, MAZE, CAVE])
def test_a_table_says_what_it_was_told_and_episodes_carry_it(cell: Cell) -> None:
    playing = player(cell, seed=3)
    assert np.allclose(playing.chosen_XA, start_of(cell, 3).policy_XA)
    [episode] = playing.play(1, 1)[0].members
    states, actions = playing.world.places(episode)
    assert np.allclose(np.exp(episode.logprobs_T), playing.chosen_XA[states, actions])


@pytest.mark.parametrize("cell", [TRAIL, MAZE, CAVE])
def test_exact_values_are_those_of_the_library(cell: Cell) -> None:
    playing = player(cell)
    world = playing.world
    numbers = {key: number for number, key in enumerate(world.graph.keys)}

    def asked(state: State) -> Floats:
        return playing.chosen_XA[numbers[state.key]]

    slow, fast = policy_values(world.graph, asked), world.values(playing.chosen_XA)
    assert fast.start == pytest.approx(slow.start)
    for episode in playing.play(1, 6)[0].members:
        states, actions = world.places(episode)
        turns = np.arange(len(states))
        assert np.allclose(world.advantages(fast, episode), slow.advantages_HXA[turns, states, actions])
        assert np.allclose(world.action_values(fast, episode), slow.q_HXA[turns, states, actions])


@pytest.mark.parametrize("outcome", ["graded", "common", "rare"])
@pytest.mark.parametrize("horizon", [4, 9])
def test_a_trail_begins_at_the_success_that_was_asked_for(outcome: str, horizon: int) -> None:
    start = start_of(Cell(horizon, outcome), 1)  # type: ignore[arg-type]
    assert start.world.values(start.policy_XA).start == pytest.approx(BEGIN[outcome], abs=1e-6)


def test_what_a_judge_sees_and_what_the_policy_sees() -> None:
    world = start_of(TRAIL, 0).world
    number = {key: n for n, key in enumerate(world.graph.keys)}
    one, two = (
        world._context(int(world.state_X[number[k]]), int(world.view_X[number[k]])) for k in ("station 3, 0 right", "station 3, 2 right")
    )
    engines = {name: world.engine(window) for name, window in SEES.items()}
    assert engines["view"].key(one) == engines["view"].key(two) and engines["state"].key(one) != engines["state"].key(two)
    before = np.concatenate([[0], one])
    assert engines["state"].key(before) == engines["state"].key(one), "what was done before the state does not matter"


def test_continuations_keep_what_they_continue_and_are_worth_q() -> None:
    playing = player(TRAIL)
    [episode] = playing.play(1, 1)[0].members
    made = playing.go_on([Prefix(episode, 2, draw) for draw in range(800)])
    assert all(other.turns[:2] == episode.turns[:2] for other in made)
    chance = playing.world.action_values(playing.world.values(playing.chosen_XA), episode)[1]
    assert np.mean([other.verdict.score for other in made]) == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / 800))
    assert playing.episodes == 801


def test_the_demonstration_is_the_best_there_is() -> None:
    for cell in (TRAIL, MAZE, CAVE):
        assert player(cell).demonstration(0).verdict.score == pytest.approx(start_of(cell, 0).world.best.start)


def test_a_noisy_grader_does_not_look() -> None:
    rng = np.random.default_rng(0)
    flipped = Grader(0.4)(np.ones(4000), rng)
    assert set(flipped) == {0.0, 1.0} and flipped.mean() == pytest.approx(0.8, abs=0.03)
    drawn = Grader(0.4, graded=True)(np.full(4000, 0.25), rng)
    assert (drawn == 0.25).mean() == pytest.approx(0.6, abs=0.03)
    assert np.array_equal(Grader()(np.ones(3), rng), np.ones(3))


# -- arms ---------------------------------------------------------------------------------------------------------------------


def test_the_oracle_says_the_exact_advantage() -> None:
    playing = player(TRAIL)
    groups = playing.play(1, 4)
    values = playing.world.values(playing.chosen_XA)
    for member in Oracle(playing).score(groups)[0].members:
        assert np.array_equal(member.process_S, playing.world.advantages(values, member.episode))


@pytest.mark.parametrize("arm", plan.ARMS)
def test_every_arm_runs_with_every_option(arm: str) -> None:
    for setting in plan.settings(arm)[:2]:
        moments = train(Cell(3, "common"), arm, setting, 0)
        first, second, third = (next(moments) for _ in range(3))
        assert first.success == pytest.approx(0.3, abs=1e-6) and third.success != first.success
        assert second.episodes - first.episodes >= BATCH
        assert needs_of(rule_of(setting)) <= {"values", "confidence"}


def test_continuations_and_demonstrations_count_as_episodes() -> None:
    def episodes(arm: str) -> list[int]:
        moments = train(Cell(3, "common"), arm, plan.settings(arm)[0], 0)
        return [next(moments).episodes for _ in range(3)]

    assert episodes("grpo") == [0, 16, 32]
    assert episodes("repirl") == [0, 17, 34]
    assert episodes("labelled") == [32, 48, 64]
    assert episodes("montecarlo") == [0, 16 + 2 * 3, 2 * (16 + 2 * 3)], "one member of each of two groups, from three places"


def test_an_unknown_arm_is_refused() -> None:
    playing = player(TRAIL)
    with pytest.raises(StudyError, match="no arm 'telepathy'"):
        judge_of("telepathy", Stage({}, playing.model, playing, 0), {})


# -- measures by hand ---------------------------------------------------------------------------------------------------------


def test_measures_by_hand() -> None:
    assert measures.auc(np.array([3.0, 1.0, 2.0]), np.array([1.0, -1.0, -1.0])) == 1.0
    assert measures.auc(np.array([1.0, 1.0]), np.array([1.0, -1.0])) == 0.5
    assert math.isnan(measures.auc(np.array([1.0]), np.array([1.0])))
    assert measures.spearman(np.zeros(3), np.arange(3.0)) == 0.0
    assert math.isnan(measures.spearman(np.arange(3.0), np.zeros(3)))
    pairs = [(np.array([1.0, 0.0]), np.array([0.2, 0.1])), (np.array([0.0, 1.0]), np.array([0.2, 0.1])), (np.array([5.0]), np.array([1.0]))]
    assert measures.spearman_within(pairs) == 0.0
    found = [
        (np.array([0.1, 0.0, 0.5]), np.array([0.0, -1.0, 0.0])),
        (np.array([0.0, 0.0]), np.array([-1.0, 0.0])),
        (np.ones(2), np.ones(2)),
    ]
    assert measures.located(found) == 0.75
    assert measures.brier(np.array([0.5, 1.0]), np.array([1.0, 1.0])) == 0.125
    assert measures.calibration_error(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0.0
    assert measures.to_target([0, 10], [0.0, 0.5], 0.8, 100) == (100.0, False)
    assert measures.to_target([0, 10], [0.9, 0.5], 0.8, 100) == (0.0, True)
    assert parts.area([0, 50, 100], [0.0, 1.0, 1.0], 100) == pytest.approx(0.75, abs=1e-3)


def test_a_ratio_of_episodes_is_of_the_means_and_paired() -> None:
    one = Arm("grpo", [0.0] * 3, [200.0, 400.0, 600.0], [True, True, False])
    other = Arm("oracle", [0.0] * 3, [100.0, 200.0, 300.0], [True, True, True])
    made = ratio(one, other)
    assert (made.value, made.low, made.high, made.is_bound) == (2.0, pytest.approx(2.0), pytest.approx(2.0), True)


# -- importance weights -------------------------------------------------------------------------------------------------------


def test_meetings_are_those_of_all_episodes() -> None:
    world: World = start_of(Cell(3, "common"), 0).world
    rewards = np.random.default_rng(0).normal(size=world.graph.reward_XA.shape)
    found = np.zeros_like(rewards)
    total = 0.0
    for way in trajectories(world.graph, uniform):
        weight = way.probability * math.exp(sum(rewards[x, a] for x, a in zip(way.states, way.actions, strict=True)))
        total += weight
        for x, a in zip(way.states, way.actions, strict=True):
            found[x, a] += weight
    graph = type(world.graph)(*(rewards if name == "reward_XA" else getattr(world.graph, name) for name in world.graph.__slots__))
    soft = soft_values(graph, temperature=1.0)
    assert np.allclose(meetings(world, soft), found / total) and soft.log_z == pytest.approx(math.log(total))


# -- the study ----------------------------------------------------------------------------------------------------------------


def small() -> parts.Scale:
    arms = ("grpo", "oracle", "repirl")
    return parts.Scale.mini()._replace(
        arms=arms, map_arms=arms, anchors=plan.ANCHORS[:1], cells=parts.Scale.mini().cells[:1], horizons=(2,)
    )


def jobs(results: Path) -> list[Job]:
    """Of all parts, as far as earlier ones are there."""
    makers = (parts.judge_jobs, parts.arm_jobs, parts.quality_jobs, parts.weight_jobs, parts.efficiency_jobs, parts.map_jobs)
    return [job for maker in makers for job in maker(results, small())]


class _KilledError(Exception):
    pass


def test_a_miniature_of_the_study_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    said: list[str] = []

    def dies(text: str) -> None:
        said.append(text)
        if len(said) == 6:
            raise _KilledError

    with pytest.raises(_KilledError):
        finish(jobs(tmp_path / "results"), say=dies)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")}
    assert len(before) == 5
    finish(jobs(tmp_path / "results"), say=said.append)
    assert f"5 of {len(jobs(tmp_path / 'results'))} results are there" in said
    assert all(path.stat().st_mtime_ns == then for path, then in before.items()), "what was there is not run again"
    write_report(tmp_path, small())
    table = (tmp_path / "table.md").read_text()
    for words in ("## What judges know", "## Importance weights", "## Episodes to a success", "## Where process rewards pay"):
        assert words in table
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"quality.png", "weights.png", "efficiency.png", "map.png"}
    assert all(path.stat().st_size < 200_000 for path in (tmp_path / "plots").iterdir())


def test_a_result_depends_on_its_seed_alone() -> None:
    setting = plan.settings("temporal")[0]
    one, same, other = (parts.run(Cell(3, "common"), "temporal", setting, seed, 48) for seed in (0, 0, 1))
    assert one == same and one != other
    episodes, success = one["episodes"], one["success"]
    assert isinstance(episodes, Sequence) and isinstance(success, Sequence)
    assert list(episodes) == [0, 16, 32, 48] and json.dumps(one)


def test_tuning_chooses_the_largest_area(tmp_path: Path) -> None:
    folder = tmp_path / "arms"
    folder.mkdir()
    tried = [{"setting": {"lr": lr}, "areas": areas} for lr, areas in ((0.1, [0.2, 0.4]), (0.3, [0.5, 0.3]))]
    (folder / f"{plan.ANCHORS[0].name}--grpo.json").write_text(json.dumps(tried))
    assert parts.chosen(tmp_path, Cell(16, "common"), "grpo") == {"lr": 0.3}
    with pytest.raises(StudyError, match="has not been tuned"):
        parts.chosen(tmp_path, Cell(16, "graded"), "grpo")
    assert read_all(folder) and set(plan.TUNING_SEEDS).isdisjoint(plan.SEEDS)


def test_the_map_is_a_whole_factorial_and_its_plane_of_groups_of_eight_comes_first() -> None:
    """Cells of `common` have the settings of `rare`, those of other sizes the settings of 8."""
    trails = [cell for cell in plan.MAP if cell.forgiven == 0.5]
    assert len(set(plan.MAP)) == len(plan.MAP) == 5 * 3 * 2 * 3 + 1
    assert {(c.horizon, c.outcome, c.noise, c.size) for c in trails} == {
        (h, o, n, g) for h in (4, 8, 16, 32, 64) for o in ("graded", "common", "rare") for n in (0.0, 0.4) for g in (4, 8, 16)
    }
    assert all(c.size == 8 and c.horizon < 64 for c in trails[:24])
    assert all(c.size != 8 and c.horizon == 8 for c in trails[24:36])
    assert all(c.size == 8 and c.horizon == 64 for c in trails[36:42])
    assert plan.anchor_of(Cell(16, "common", 0.4, 4)) == Cell(8, "rare", 0.4)


def test_savings_of_a_factor_are_geometric_means_over_whole_levels_alone(tmp_path: Path) -> None:
    """All cells of 4 and 8 steps in groups of 8, where one outcome-only arm needs 40 and 80 episodes and the oracle 10; one cell of 16."""
    line = {"area": 0.5, "success": [0.0, 0.8]}

    def arms(episodes: float) -> dict[str, object]:
        others = {name: {**line, "episodes": [0, at]} for name, at in (("oracle", 10.0), ("implicit", 80.0), ("labelled", 20.0))}
        return {"grpo": {**line, "episodes": [0, episodes]}, **others}

    cells = [cell for cell in plan.MAP if cell.size == 8 and cell.horizon in (4, 8) and cell.forgiven] + [Cell(16, "graded", 0.0)]
    (tmp_path / "results" / "map").mkdir(parents=True)
    for cell in cells:
        path = tmp_path / "results" / "map" / f"{cell.name}-s0.json"
        path.write_text(json.dumps(arms(10.0 * cell.horizon)), encoding="utf-8")
    write_report(tmp_path, parts.Scale())
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert (
        "| steps | 4 | 6 | 4.00 | 0.50 | 2.00 |\n| steps | 8 | 6 | 8.00 | 1.00 | 4.00 |\n| outcome | graded | 4 | 5.66 | 0.71 | 2.83 |"
        in table
    )
    assert "| noise | 0.4 | 6 | 5.66 |" in table
    assert "\n| steps | 16 |" not in table
    assert "\n| group |" not in table
    assert table.index("| trail | 16 | graded | 0 | 8 |") < table.index("| trail | 4 | common | 0 | 8 |")


def test_every_judge_of_the_library_that_needs_no_text_is_here() -> None:
    assert set(JUDGES) >= {
        "istar",
        "prime",
        "repirl",
        "regail",
        "iq",
        "montecarlo",
        "temporal",
        "labelled",
        "soft_q",
        "entropy",
        "intrinsic",
        "critic",
    }
    assert all(len(plan.settings(arm)) == 6 for arm in plan.ARMS), "the same number of settings for all"
