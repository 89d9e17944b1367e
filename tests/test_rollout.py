"""Rollouts: tokens as sampled, contexts as seen, and every way an episode may end."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from speakers import CHATML, SAY, Parrot, Script, Scripted, Speaker, chatml_tokenizer, merging_tokenizer, shop, shop_speaker

from stepwell.configure import load
from stepwell.credit import Baseline, Centred, OutcomeOnly, Standardised
from stepwell.engine.batch import episode_rows, parts_of, policy_rows
from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET, TOOL_CALL
from stepwell.errors import ConfigError
from stepwell.grading.numbers import last_number, read_number
from stepwell.losses import token_weights
from stepwell.protocols import ModelSpec
from stepwell.rewards.outcome import OutcomeReward
from stepwell.rollout import Limits, Player, demonstrate, rollout
from stepwell.seeding import Seed, derive
from stepwell.tracking.metrics import episode_metrics
from stepwell.types import (
    Action,
    Completion,
    EndingKind,
    Episode,
    Ids,
    Invalid,
    Observation,
    Reply,
    Sampling,
    Stop,
    Task,
    Tool,
    Turn,
    Verdict,
)

TOKENIZER = chatml_tokenizer(["say[hello] say[hello world]"], 300)
CHAT = Chat.of(TOKENIZER)
PLAYER = Player(CHAT, BRACKET, Sampling(max_tokens=12), Limits(turns=5, context=600))
END = TOKENIZER.eos_token_id
TASKS = Scripted(lambda task, member: Script("hi", [])).tasks("test")


def say(text: str, stop: Stop = Stop.EOS) -> Completion:
    found = TOKENIZER(text, add_special_tokens=False)["input_ids"] + ([END] if stop is Stop.EOS else [])
    return Completion(np.array(found), np.full(len(found), -0.5), text, stop)


def speaking(template: str, context: str = "chat", window: int = 0) -> Player:
    tokenizer = copy.deepcopy(TOKENIZER)
    tokenizer.chat_template = template
    return replace(PLAYER, chat=Chat.of(tokenizer, context, window=window))  # type: ignore[arg-type]


def hello() -> Parrot:
    return Parrot(lambda context, call: say("say[hello]"))


def play(domain: Scripted, policy: Parrot | None = None, player: Player = PLAYER, members: int = 1) -> tuple[Episode, ...]:
    return rollout(domain, TASKS[:1], policy or hello(), player, group_size=members, seed=(0, "test"))[0].members


def three_turns(task: Task, member: int) -> Script:
    return Script("hello there", ["one", "two", "three"])


# -- what is played -----------------------------------------------------------------------------------------------------------


def test_an_episode_from_start_to_end() -> None:
    (episode,) = play(Scripted(three_turns))
    assert episode.ending.kind is EndingKind.TERMINATED
    assert episode.start.text == "hello there"
    assert [turn.reply.observation.text for turn in episode.turns] == ["one", "two", "three"]
    assert [turn.action for turn in episode.turns] == [Action("say", {"what": "hello"})] * 3
    assert episode.verdict == Verdict.of(1.0)
    assert episode.num_tokens == 3 * len(say("say[hello]").token_ids)


def test_groups_come_back_in_order_whatever_the_batch() -> None:
    made = []
    for rows in (1, 3, 100):
        policy = hello()
        player = replace(PLAYER, limits=replace(PLAYER.limits, rows=rows))
        groups = rollout(Scripted(three_turns), TASKS, policy, player, group_size=2, seed=(7,))
        assert [group.task.key for group in groups] == [task.key for task in TASKS]
        assert [[e.member for e in group.members] for group in groups] == [[0, 1]] * 4
        assert max(len(contexts) for contexts in policy.asked) == min(rows, 8)
        made.append(sorted(policy.seeds))
    assert made[0] == made[1] == made[2], "a turn's seed is a function of task, member and turn"
    assert len(set(made[0])) == 4 * 2 * 3


def test_members_of_a_group_have_seeds_that_are_siblings_turn_by_turn() -> None:
    policy = hello()
    rollout(Scripted(three_turns), TASKS, policy, PLAYER, group_size=3, seed=(7,))
    assert [seed.place for seed in policy.seeds if isinstance(seed, Seed)] == [0, 1, 2] * 4 * 3
    families = [{seed.family for seed in policy.seeds[at : at + 3] if isinstance(seed, Seed)} for at in range(0, 36, 3)]
    assert [len(family) for family in families] == [1] * 12 and len(set.union(*families)) == 12
    assert policy.seeds[4] == derive(7, 1, 1, 0), "slot, member, turn"


def test_contexts_grow_by_the_sampled_ids_and_the_reply() -> None:
    policy = hello()
    (episode,) = play(Scripted(three_turns), policy)
    spoken = [TOKENIZER.decode(turn.context_ids) for turn in episode.turns]
    opening = "<|im_start|>user\nhello there<|im_end|>\n<|im_start|>assistant\n"
    reply = "say[hello]<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    assert spoken == [opening, opening + reply.format("one"), opening + reply.format("one") + reply.format("two")]
    assert [turn.context_ids.tolist() for turn in episode.turns] == [asked[0].tolist() for asked in policy.asked]


OPENS = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
STRIPS = CHATML.replace(
    "{{ message.content }}", "{{ message.content.split('</think>')[-1] if message.role == 'assistant' else message.content }}"
)


@pytest.mark.parametrize("template", [CHATML, STRIPS], ids=["append-only", "rewrites"])
@pytest.mark.parametrize(("context", "window"), [("chat", 0), ("window", 1), ("observation", 0)])
def test_training_rows_hold_the_contexts_that_were_sampled_from(template: str, context: str, window: int) -> None:
    """U37, U38: prompt ids of every turn equal the prefix of its training row, step by step."""
    thought = "<think>hm</think>say[hello]"
    policy = Parrot(lambda asked, call: say(thought if call % 2 else "say[hello]"))
    (episode,) = play(Scripted(three_turns), policy, speaking(template, context, window))
    trained = [(row.ids[:at].tolist(), int(row.ids[at])) for row in episode_rows(episode) for at in row.targets]
    sampled = [
        ([*asked[0].tolist(), *turn.token_ids[:n].tolist()], int(token))
        for asked, turn in zip(policy.asked, episode.turns, strict=True)
        for n, token in enumerate(turn.token_ids)
    ]
    assert trained == sampled
    rows = {"chat": 1 if template == CHATML else 2, "window": 2, "observation": 3}
    assert len(parts_of(episode)) == rows[context], "what was rewritten starts a row of its own"


def test_trained_ids_are_sampled_ids() -> None:
    """U35, U36: [a, bc] is the text abc, which is encoded as [ab, c]."""
    tokenizer = merging_tokenizer()
    a, bc, end = (tokenizer.convert_tokens_to_ids(name) for name in ("a", "bc", "<|end|>"))
    assert tokenizer("abc", add_special_tokens=False)["input_ids"] != [a, bc]
    said = np.array([a, bc, end])
    chat = Chat.of(tokenizer)
    policy = Parrot(lambda context, call: Completion(said, np.full(3, -0.5), "abc", Stop.EOS))
    (episode,) = play(Scripted(lambda task, member: Script("ab", ["c", "a"])), policy, replace(PLAYER, chat=chat))
    (row,) = episode_rows(episode)
    assert row.ids[row.targets].tolist() == [a, bc, end] * 2
    assert len(row.targets) == len(row.weight) == episode.num_tokens == len(episode.logprobs_T)


def test_members_that_see_different_texts_are_one_group() -> None:
    """U18: a group is a task's, whatever its environment adds to the prompt."""
    domain = Scripted(lambda task, member: Script(f"in /work-{member}", ["one"]), lambda episode: Verdict.of(float(episode.member)))
    (group,) = rollout(domain, TASKS[:1], hello(), PLAYER, group_size=2, seed=(0,))
    assert len({e.start.text for e in group.members}) == 2
    (credited,) = OutcomeOnly(Centred())(OutcomeReward().score([group]))
    assert [m.advantages_S.tolist() for m in credited.members] == [[-0.5], [0.5]]


@pytest.mark.parametrize("baseline", [Centred(), Standardised(ddof=0, noise_floor=0.0)])
def test_a_task_is_one_group_up_to_the_rows_that_train(baseline: Baseline) -> None:
    """U17: outcomes [1, 0, 1, 0], and each turn a row of its own: a row has its episode's advantage against the group, never the reward."""
    domain = Scripted(three_turns, lambda episode: Verdict.of(float(episode.member % 2 == 0)))
    group = rollout(domain, TASKS[:1], hello(), speaking(CHATML, "observation"), group_size=4, seed=(0,))
    rows = policy_rows(
        OutcomeOnly(baseline)(OutcomeReward().score(group)), lambda n: token_weights(n, "token"), lambda s: s.episode.logprobs_T
    )
    size = 0.5 if baseline == Centred() else 1.0
    assert [row.episode for row in rows] == [member for member in range(4) for _ in range(3)]
    assert [set(row.advantage.tolist()) for row in rows] == [{size if row.episode % 2 == 0 else -size} for row in rows]


@pytest.mark.parametrize("name", ["top_p", "top_k"])
def test_the_support_of_sampling_is_that_of_training(name: str) -> None:
    """U49: log-probs that a trainer could not recompute cannot be asked for."""
    with pytest.raises(TypeError, match=name):
        Sampling(**{name: 1})
    with pytest.raises(ConfigError, match=rf"rollout\.{name} is not a setting"):
        load("smoke", [f"rollout.{name}=1"])


def test_finish_reasons_are_kept_for_every_turn() -> None:
    """U53."""
    for cut in range(3):
        policy = Parrot(lambda context, call, cut=cut: say("say[hello]", Stop.LENGTH if call == cut else Stop.EOS))  # type: ignore[misc]
        (episode,) = play(Scripted(three_turns), policy)
        assert [turn.stop for turn in episode.turns] == [Stop.LENGTH if turn == cut else Stop.EOS for turn in range(3)]


def test_a_malformed_message_is_an_invalid_action() -> None:
    """U57, U58."""
    policy = Parrot(lambda context, call: say(["I would say[hello] now", "say[hello", "say[done] said, then\nsay[hi]"][call]))
    (episode,) = play(Scripted(three_turns), policy)
    assert [isinstance(turn.action, Invalid) for turn in episode.turns] == [True, True, False]
    assert [turn.reply.valid for turn in episode.turns] == [False, False, True]


class UntilDone:
    """Ends when somebody says that it is done."""

    tools: Sequence[Tool] = (SAY,)

    def start(self) -> Observation:
        return Observation("hi")

    def step(self, action: Action | Invalid) -> Reply:
        return Reply(Observation("yes"), done=isinstance(action, Action) and action.arguments == {"what": "done"})


def test_words_in_the_reasoning_do_not_end_an_episode() -> None:
    """U58: neither a mention of the last call nor one that the cut-off reasoning holds."""
    texts = ["<think>at the end I write\nsay[done]</think>\nsay[hello]", "<think>is it time?\nsay[done]", "<think>yes</think>say[done]"]
    policy = Parrot(lambda context, call: say(texts[call]))
    (episode,) = play(Scripted(lambda task, member: UntilDone()), policy)
    assert [type(turn.action) for turn in episode.turns] == [Action, Invalid, Action]
    assert (episode.ending.kind, episode.turns[0].action) == (EndingKind.TERMINATED, Action("say", {"what": "hello"}))


def test_reasoning_that_the_prompt_opened_belongs_to_the_message() -> None:
    """U59: without its end, a call in it is no action."""
    player = speaking(OPENS)
    assert player.chat.prefill
    policy = Parrot(lambda context, call: say(["I think\nsay[hello]", "I think\n</think>\nsay[hello]", "</think>\nsay[x]"][call]))
    (episode,) = play(Scripted(three_turns), policy, player)
    assert [type(turn.action) for turn in episode.turns] == [Invalid, Action, Action]


# -- how it ends --------------------------------------------------------------------------------------------------------------


def test_the_turn_limit_is_terminal_and_graded() -> None:
    (episode,) = play(Scripted(three_turns), player=replace(PLAYER, limits=Limits(turns=2, context=600)))
    assert (episode.ending.kind, len(episode.turns)) == (EndingKind.TURN_LIMIT, 2)
    assert episode.ending.terminal
    assert episode.verdict.score == 1.0


def test_an_observation_that_overflows_the_context_truncates_its_episode_alone() -> None:
    """U54."""
    flood = Scripted(lambda task, member: Script("hi", ["x" * 1_000_000 if member == 1 else "one", "two"]))
    one, two, three = play(flood, members=3)
    assert (two.ending.kind, len(two.turns)) == (EndingKind.TRUNCATED, 1)
    assert "leaves no room in 600" in two.ending.reason
    assert not two.ending.terminal
    assert two.verdict.score == 1.0, "graded as it stands"
    assert [e.ending.kind for e in (one, three)] == [EndingKind.TERMINATED] * 2


def test_room_shrinks_with_the_context() -> None:
    start = len(CHAT.converse("hi").context())
    policy = Parrot(lambda context, call: say("say"))
    player = replace(PLAYER, limits=Limits(turns=5, context=start + 30))
    (episode,) = play(Scripted(lambda task, member: Script("hi", ["one"] * 9)), policy, player)
    assert episode.ending.kind is EndingKind.TRUNCATED
    room = [start + 30 - len(asked[0]) for asked in policy.asked]
    assert [sampling.max_tokens for sampling in policy.sampled] == [min(12, n) for n in room]
    assert min(room) < 12


def test_a_first_observation_that_overflows_truncates_at_once() -> None:
    (episode,) = play(Scripted(lambda task, member: Script("x" * 5000, ["one"])))
    assert (episode.ending.kind, episode.turns, parts_of(episode)) == (EndingKind.TRUNCATED, (), [])


def raising(where: str) -> Callable[[Task, int], Script]:
    def script(task: Task, member: int) -> Script:
        if member != 3:
            return three_turns(task, member)
        if where == "making":
            raise ConnectionError("the server is away")
        if where == "start":
            return Script(ConnectionError("the server is away"), [])
        return Script("hi", ["one", ConnectionError("the server is away"), "three"])

    return script


@pytest.mark.parametrize(("where", "doing", "turns"), [("making", "starting", 0), ("start", "starting", 0), ("step", "a step of", 2)])
def test_one_environment_of_eight_that_raises_fails_alone(where: str, doing: str, turns: int) -> None:
    """U55, U56: seven are used, one is recorded as failed, and the baseline is that of seven."""
    group = rollout(Scripted(raising(where)), TASKS[:1], hello(), PLAYER, group_size=8, seed=(0,))[0]
    assert [e.failed for e in group.members] == [m == 3 for m in range(8)]
    failed = group.members[3]
    assert failed.ending.reason == f"{doing} the environment: ConnectionError: the server is away"
    assert failed.verdict.score is None and failed.verdict.reason == failed.ending.reason
    assert len(failed.turns) == turns
    assert all(e.verdict.score == 1.0 for e in group.members if not e.failed)
    (scored,) = OutcomeReward().score([group])
    assert [m.outcome for m in scored.members] == [None if m == 3 else 1.0 for m in range(8)]
    (credited,) = OutcomeOnly(Centred())([scored])
    assert all((m.advantages_S == 0).all() for m in credited.members), "all seven are equal: the failed one is no 0 in their baseline"


def test_an_observation_that_is_no_text_fails_its_episode() -> None:
    one, two = play(Scripted(lambda task, member: Script("hi", ["one", None if member else "two", "three"])), members=2)  # type: ignore[list-item]
    assert one.ending.kind is EndingKind.TERMINATED
    assert two.failed and "must be a string" in two.ending.reason


@dataclass
class Broken:
    """An environment whose first and later answers are given as they are, right or wrong."""

    first: object
    reply: object
    tools: Sequence[Tool] = (SAY,)

    def start(self) -> Observation:
        return self.first  # type: ignore[return-value]

    def step(self, action: Action | Invalid) -> Reply:
        return self.reply  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("first", "reply", "reason"),
    [
        (None, None, "starting the environment: EnvironmentFault: the observation is a NoneType; it must be an Observation"),
        (Observation("\ud800"), None, "the observation's text cannot be encoded (surrogates not allowed at character 0)"),
        (Observation("hi"), None, "a step of the environment: EnvironmentFault: step returned a NoneType; it must be a Reply"),
        (Observation("hi"), Reply("text"), "the observation is a str; it must be an Observation"),  # type: ignore[arg-type]
        (Observation("hi"), Reply(Observation("a \udc80")), "cannot be encoded (surrogates not allowed at character 2)"),
        (Observation("hi"), Reply(Observation(""), math.nan), "the reply's reward is nan; it must be a finite number"),
        (Observation("hi"), Reply(Observation(""), math.inf), "the reply's reward is inf; it must be a finite number"),
        (Observation("hi"), Reply(Observation(""), None), "the reply's reward is None; it must be a finite number"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_is_none_fails_its_episode_and_can_be_written_down(first: object, reply: object, reason: str) -> None:
    """U55: what an environment must not return is told as its fault, once, and not met again in credit or in the log."""
    one, two = play(Scripted(lambda task, member: Broken(first, reply) if member else three_turns(task, member)), members=2)
    assert one.ending.kind is EndingKind.TERMINATED
    assert two.failed and reason in two.ending.reason
    assert all(turn.reply == Reply(Observation(""), valid=False) for turn in two.turns)


def test_a_verdict_that_is_none_leaves_the_episode_unscored() -> None:
    (episode,) = play(Scripted(three_turns, lambda episode: None))  # type: ignore[arg-type, return-value]
    assert episode.verdict == Verdict.unscored("grading: EnvironmentFault: grade returned a NoneType; it must be a Verdict")


def test_a_grader_that_raises_leaves_the_episode_unscored() -> None:
    """U55: not 0, and the episode is not failed."""

    def grade(episode: Episode) -> Verdict:
        if episode.member == 1:
            raise RuntimeError("verifier crashed")
        return Verdict.of(0.0)

    one, two = play(Scripted(three_turns, grade), members=2)
    assert one.verdict == Verdict.of(0.0)
    assert two.verdict == Verdict.unscored("grading: RuntimeError: verifier crashed")
    assert not two.failed


def test_a_judges_reply_that_cannot_be_read_is_no_reward() -> None:
    """U08: of a real 0, a reply without a number, an empty one and a 1, the two numbers alone count; the others are told."""
    replies = ["Reward: 0", "I think it is fine", "", "Reward: 1"]

    def grade(episode: Episode) -> Verdict:
        return Verdict.of(float(read_number(last_number(replies[episode.member]) or "")))  # type: ignore[arg-type]

    group = rollout(Scripted(three_turns, grade), TASKS[:1], hello(), PLAYER, group_size=4, seed=(0,))
    verdicts = [episode.verdict for episode in group[0].members]
    assert [verdict.score for verdict in verdicts] == [0.0, None, None, 1.0]
    assert all("grading: TypeError" in verdict.reason for verdict in verdicts[1:3])
    (credited,) = OutcomeOnly(Centred())(OutcomeReward().score(group))
    assert [set(member.advantages_S.tolist()) for member in credited.members] == [{-0.5}, {0.0}, {0.0}, {0.5}]
    found = episode_metrics(group)
    assert (found["rollout/score"], found["rollout/unscored"], found["rollout/failed"]) == (0.5, 2.0, 0.0)


def test_the_wall_clock_truncates_slow_episodes_alone() -> None:
    """U55: an environment that sleeps past the limit."""

    def script(task: Task, member: int) -> Script:
        return Script("hi", ["one", (lambda: time.sleep(0.3) or "two") if member == 1 else "two", "three"])

    one, two, three = play(Scripted(script), player=replace(PLAYER, limits=Limits(turns=5, context=600, wall_s=0.25, rows=2)), members=3)
    assert (two.ending.kind, two.ending.reason) == (EndingKind.TRUNCATED, "the episode took longer than 0.25 s")
    assert len(two.turns) == 2
    assert two.verdict.score == 1.0, "what the policy did in its time is graded"
    assert three.ending.kind is EndingKind.TERMINATED, "its clock starts when it does, not while it waits"
    assert one.ending.kind in (EndingKind.TRUNCATED, EndingKind.TERMINATED)


def test_errors_that_are_not_the_environments_stop_the_rollout() -> None:
    def refuses(context: Ids, call: int) -> Completion:
        raise ConfigError("the temperature is wrong")

    with pytest.raises(ConfigError, match="temperature is wrong"):
        play(Scripted(three_turns), Parrot(refuses))


@pytest.mark.parametrize(
    ("limits", "match"),
    [({"turns": 0}, "limit of turns is 0"), ({"context": 0}, "limit of context is 0"), ({"rows": 0}, "rows"), ({"wall_s": 0.0}, "0.0 s")],
)
def test_limits_are_checked(limits: dict[str, int], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Limits(**{"turns": 5, "context": 100, **limits})  # type: ignore[arg-type]


def test_a_group_has_members() -> None:
    with pytest.raises(ConfigError, match="group size is 0"):
        rollout(Scripted(three_turns), TASKS, hello(), PLAYER, group_size=0, seed=(0,))


# -- demonstrations -----------------------------------------------------------------------------------------------------------

SPEAKER = shop_speaker(turns=8)


def test_a_demonstration_is_the_experts_episode_in_the_policys_words() -> None:
    domain = shop()
    task = domain.draw(3)
    episode = demonstrate(domain, task, SPEAKER.player)
    assert [turn.action for turn in episode.turns] == list(domain.expert(task))
    assert (episode.ending.kind, episode.verdict.success) == (EndingKind.TERMINATED, True)
    assert all(int(turn.token_ids[-1]) in SPEAKER.player.chat.eos_ids for turn in episode.turns)
    assert len(parts_of(episode)) == 1


def test_a_demonstration_closes_the_reasoning_that_the_prompt_opened() -> None:
    player = speaking(OPENS)
    episode = demonstrate(Scripted(three_turns), TASKS[0], player, [Action("say", {"what": "hello"}), Invalid("hm", "no call")])
    assert episode.turns[0].action == Action("say", {"what": "hello"})
    assert episode.turns[0].text == "\n</think>\n\nsay[hello]"
    assert isinstance(episode.turns[1].action, Invalid)


def test_a_demonstration_holds_to_the_limits() -> None:
    actions = [Action("say", {"what": "hello"})] * 5
    domain = Scripted(lambda task, member: Script("hi", ["one"] * 9))
    short = demonstrate(domain, TASKS[0], replace(PLAYER, limits=Limits(turns=2, context=600)), actions)
    assert (len(short.turns), short.ending.kind) == (2, EndingKind.TURN_LIMIT)
    full = demonstrate(domain, TASKS[0], replace(PLAYER, limits=Limits(turns=9, context=60)), actions)
    assert full.ending.kind is EndingKind.TRUNCATED
    assert 0 < len(full.turns) < 5
    ended = demonstrate(domain, TASKS[0], PLAYER, actions[:2])
    assert (len(ended.turns), ended.ending.kind, ended.ending.reason) == (2, EndingKind.TURN_LIMIT, "the demonstration ends here")


def test_demonstrations_need_somebody_who_shows() -> None:
    with pytest.raises(ConfigError, match="no expert for task 'script/test/0'"):
        demonstrate(Scripted(three_turns), TASKS[0], PLAYER)
    failed = demonstrate(Scripted(raising("start")), TASKS[0], PLAYER, [Action("say", {"what": "x"})])
    assert not failed.failed
    failed = demonstrate(Scripted(lambda task, member: Script(OSError("gone"), [])), TASKS[0], PLAYER, [Action("say", {"what": "x"})])
    assert failed.failed and failed.ending.reason == "starting the environment: OSError: gone"


# -- with a model, in the generated shop --------------------------------------------------------------------------------------


def turns_of(groups: list[tuple[Episode, ...]]) -> list[Turn]:
    return [turn for members in groups for episode in members for turn in episode.turns]


def visit(speaker: Speaker, temperature: float, *, forget: bool = False) -> tuple[list[Episode], list[np.ndarray]]:
    """Episodes in the shop, and the trainer's log-probs of each."""
    model = speaker.engine.model(f"policy {forget}", ModelSpec(temperature=temperature))
    policy = model.snapshot()
    if forget:
        sample = policy.sample

        def forgetful(*args: object) -> list[Completion]:
            policy.forget()
            return sample(*args)  # type: ignore[arg-type]

        policy.sample = forgetful  # type: ignore[method-assign, assignment]
    player = replace(speaker.player, sampling=replace(speaker.player.sampling, temperature=temperature))
    domain = shop()
    groups = rollout(domain, [domain.draw(seed) for seed in range(4)], policy, player, group_size=3, seed=(0,))
    episodes = [episode for group in groups for episode in group.members]
    rows = [row for episode in episodes for row in episode_rows(episode)]
    assert len(rows) == len(episodes)
    return episodes, [made["logprobs"] for made in model.forward(rows)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_agree_over_whole_episodes(temperature: float) -> None:
    """U48."""
    episodes, trained = visit(shop_speaker(), temperature)
    assert np.mean([len(episode.turns) for episode in episodes]) > 3
    for episode, own in zip(episodes, trained, strict=True):
        np.testing.assert_allclose(episode.logprobs_T, own, atol=1e-4)


def test_the_cache_across_turns_changes_no_token() -> None:
    speaker = shop_speaker()
    kept, _ = visit(speaker, 1.0)
    fresh, _ = visit(speaker, 1.0, forget=True)
    for one, two in zip(turns_of([tuple(kept)]), turns_of([tuple(fresh)]), strict=True):
        assert one.token_ids.tolist() == two.token_ids.tolist()
        np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-5)


def test_the_same_seed_plays_the_same_episodes() -> None:
    one, two = ([t.token_ids.tolist() for t in turns_of([tuple(visit(shop_speaker(), 1.0)[0])])] for _ in range(2))
    assert one == two


def test_tool_calls_are_played_too() -> None:
    policy = Parrot(lambda context, call: say(TOOL_CALL.format(Action("say", {"what": "hello"}))))
    (episode,) = play(Scripted(three_turns), policy, replace(PLAYER, codec=TOOL_CALL))
    assert [turn.action for turn in episode.turns] == [Action("say", {"what": "hello"})] * 3
