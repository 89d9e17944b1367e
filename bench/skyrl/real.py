"""The remote engine against a real SkyRL server: conformance, exactness, a run with learning, kills, four devices. See scripts/test-remote.

Everything that is measured is printed as it is found, and written as a page with --log.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from exactness import compare
from plans import BASE, LEARNING, SHORT, Plan
from sharing import share

from stepwell.evaluation.intervals import Interval, bootstrap, difference

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STEPWELL = [str(Path(sys.executable).parent / "stepwell")]
BACKEND = {"max_lora_adapters": 24, "max_lora_rank": 8, "train_micro_batch_size": 1, "sample_max_num_sequences": 32}
"""A server compiles for every number of rows below its micro-batch, and every length; a row at a time, there are lengths alone."""


class Server:
    """A SkyRL server and its engine, in a process group of their own."""

    def __init__(self, python: str, base: Path, work: Path, *, devices: int = 1) -> None:
        self.python, self.base, self.work = python, base, work
        self.devices = devices
        self.compiled = Path(python).absolute().parents[1] / "compiled"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Seconds until it answers."""
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        backend: dict[str, int] = dict(BACKEND)
        if self.devices > 1:
            environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={self.devices}"
            backend |= {"fully_sharded_data_parallel_size": 2, "tensor_parallel_size": self.devices // 2}
        start = time.monotonic()
        command = [self.python, str(HERE / "serve.py"), str(self.base), str(self.port), str(self.work), json.dumps(backend)]
        self.log = (self.work.parent / f"server-{self.port}.log").open("ab")
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True)
        while time.monotonic() - start < 300:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=2) as answer:
                answer.read()
                return time.monotonic() - start
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended at once; see {self.log.name}")
            time.sleep(0.5)
        raise SystemExit(f"the server did not answer within 300 s; see {self.log.name}")

    def kill(self) -> None:
        """SIGKILL for all of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


HEAD = "# The log of scripts/test-remote\n\nWritten by `./scripts/test-remote --log docs/remote-log.md`.\n\n"


class Log:
    """What was found, as lines of Markdown; written to the page as it is found."""

    def __init__(self, page: Path | None) -> None:
        self.page = page
        self.lines: list[str] = []
        self.failed: list[str] = []
        self.start = time.monotonic()

    def say(self, line: str = "") -> None:
        self.lines.append(line)
        print(f"[{time.monotonic() - self.start:5.0f} s] {line}", flush=True)
        if self.page:
            self.page.write_text(HEAD + "\n".join(self.lines) + "\n", encoding="utf-8")

    def demand(self, passed: bool, line: str) -> None:
        self.say(f"- {'passed' if passed else '**FAILED**'}: {line}")
        if not passed:
            self.failed.append(line)


def stepwell(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STEPWELL, *arguments], capture_output=True, text=True, **settings)


def make_base(folder: Path) -> Path:
    """A tiny model with a habit to lose, written to disk."""
    for command in (
        [*BASE, "--run", str(folder / "base-run")],
        ["export", str(folder / "base-run"), str(folder / "base")],
    ):
        made = stepwell(*command)
        if made.returncode:
            raise SystemExit(f"no base: {made.stderr}")
    return folder / "base"


def metrics(run: Path) -> list[dict[str, float]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def check(log: Log, server: Server, *, again: bool) -> None:
    """`stepwell engine check` must find nothing. `again`: a second time, when all that it needs is compiled."""
    start = time.monotonic()
    made = stepwell("engine", "check", server.url, "--json")
    if made.returncode not in (0, 1):
        log.demand(False, f"engine check: {made.stderr.strip().splitlines()[-1:]}")
        return
    found = json.loads(made.stdout)
    log.demand(made.returncode == 0, f"`stepwell engine check {server.url}`: kind {found['kind']}, {len(found['findings'])} findings, "
               f"failed: {', '.join(found['failed']) or 'none'} ({time.monotonic() - start:.0f} s)")  # fmt: skip
    log.say()
    log.say("| check | measured | wanted |")
    log.say("|---|---|---|")
    for finding in found["findings"]:
        log.say(f"| {finding['check']} | {finding['measured']} | {finding['wanted']} |")
    log.say()
    if again:
        start = time.monotonic()
        code = stepwell("engine", "check", server.url, "--json").returncode
        log.demand(code == 0, f"the same again, on the server that has compiled it all ({time.monotonic() - start:.0f} s)")


CLIENTS: list[subprocess.Popen[bytes]] = []
"""All that was begun: none outlives this program."""


def begin(run: Path, config: Path, *more: str) -> subprocess.Popen[bytes]:
    out = (run.parent / f"{run.name}.log").open("ab")
    command = [*STEPWELL, "train", str(config), "--run", str(run), *more]
    CLIENTS.append(subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True))
    return CLIENTS[-1]


def wait_for(condition: Callable[[], bool], limit_s: float) -> bool:
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if condition():
            return True
        time.sleep(0.2)
    return False


def learning(log: Log, server: Server, folder: Path, plan: Plan) -> dict[str, float]:
    """Reinforcement learning alone, over the wire: by how many points success changed, on held-out tasks and on those of training."""
    run, start = folder / plan.name, time.monotonic()
    ended = begin(run, plan.write(server.url, server.base, folder)).wait()
    found = [line for line in metrics(run) if "policy/grad_norm" in line]
    log.demand(ended == 0 and len(found) == plan.steps, f"{plan.name}: {plan.steps} steps of {8 * plan.groups} episodes, without cloning, "
               f"end ({time.monotonic() - start:.0f} s)")  # fmt: skip
    if ended or not found:
        return {}
    changes: dict[str, float] = {}
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    for name, words in (("success", "at temperature 1"), ("success_greedy", "greedy")):
        before, after = (Interval(**report[name][when]) for when in ("before", "after"))
        change, low, high = (100 * x for x in difference(before, after))
        line = f"{plan.name}: success {words} on {plan.episodes} held-out tasks {before.mean:.0%} before, {after.mean:.0%} after: "
        line += f"{change:+.0f} points (95 % interval {low:+.0f} to {high:+.0f})"
        log.say(f"- {line}: {'it rose' if low > 0 else 'it fell' if high < 0 else 'no change is shown'}")
        changes[f"held-out tasks, {words}"] = change
    trained = [line["rollout/success"] for line in found]
    log.say(f"- {plan.name}: success in training, step by step: {[round(share, 2) for share in trained]}")
    third = len(trained) // 3
    first, last = bootstrap(trained[:third]), bootstrap(trained[-third:])
    change, low, high = (100 * x for x in difference(first, last))
    line = (
        f"{plan.name}: success on training tasks, drawn anew at each step, {first.mean:.0%} in the first third, {last.mean:.0%} in the last"
    )
    log.say(f"- {line}: {change:+.0f} points (95 % interval over steps {low:+.0f} to {high:+.0f})")
    changes["training tasks, last third of the steps against the first"] = change
    seconds = {
        name: sum(line[f"time/{name}_s"] for line in found[1:]) / (len(found) - 1) for name in ("rollout", "judge", "update", "step")
    }
    log.say(f"- {plan.name}: seconds of a step after the first: {json.dumps({k: round(v, 1) for k, v in seconds.items()})}")
    judged(log, plan, found)
    worst = max(line["sampler/mismatch_rms"] for line in found)
    log.demand(worst < 1e-3, f"{plan.name}: sampler and trainer differ by {worst:.2g} nats (rms) at most")
    return changes


STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""The 97.5 % quantile of Student's t for the mean of so many."""


def over_seeds(log: Log, plan: Plan, seeds: Sequence[int], changes: Sequence[dict[str, float]]) -> None:
    """What several seeds say together."""
    for name in changes[0] if len(changes) in STUDENT else ():
        points = [change[name] for change in changes if name in change]
        if len(points) != len(changes):
            continue
        mean, half = statistics.mean(points), STUDENT[len(points)] * statistics.stdev(points) / len(points) ** 0.5
        words = (
            f"{plan.name}, seeds {', '.join(map(str, seeds))}: success on {name} changed by {', '.join(f'{p:+.0f}' for p in points)} points"
        )
        log.say(f"- {words}; mean {mean:+.0f} (95 % interval over seeds {mean - half:+.0f} to {mean + half:+.0f})")


def judged(log: Log, plan: Plan, found: list[dict[str, float]]) -> None:
    """The judge starts as the policy, and says something once it has learnt."""
    if "judge/log_ratio_abs" not in found[0]:
        return
    ratios = [float(f"{line['judge/log_ratio_abs']:.2g}") for line in found]
    accuracy = [round(line["judge/fresh_pair_accuracy"], 2) for line in found if "judge/fresh_pair_accuracy" in line]
    log.demand(ratios[0] == 0.0, f"{plan.name}: the judge, which starts as the policy, says exactly 0 at first")
    if any(line["judge/mixed_groups"] for line in found[:-1]):
        log.demand(
            any(ratios[1:]), f"{plan.name}: and something else once it has learnt: log-ratios {ratios}, right of fresh pairs {accuracy}"
        )
    else:
        log.say(f"- {plan.name}: no group held better and worse episodes, so that the judge had nothing to learn from")


def uninterrupted(log: Log, server: Server, folder: Path) -> list[dict[str, float]]:
    """The run that others must repeat."""
    start, run = time.monotonic(), folder / "whole"
    ended = begin(run, SHORT.write(server.url, server.base, folder)).wait()
    found = metrics(run)
    losses = [round(line["cloning/loss"], 4) for line in found if "cloning/loss" in line]
    log.demand(ended == 0 and len(losses) == SHORT.warm, f"a run of {SHORT.warm} steps of cloning and {SHORT.steps} of learning ends "
               f"({time.monotonic() - start:.0f} s); cloning losses {losses}")  # fmt: skip
    return found


def apart(one: list[dict[str, float]], two: list[dict[str, float]]) -> tuple[int, float]:
    """How many numbers of what was learnt the two runs have in common, and how far they are apart at most."""
    names = ("cloning/loss", "rollout/success", "rollout/tokens", "judge/loss", "policy/loss")
    gaps = [abs(a[name] - b[name]) for a, b in zip(one, two, strict=False) for name in names if name in a and name in b]
    return len(gaps), max(gaps, default=float("nan"))


def killed_run(log: Log, server: Server, folder: Path, whole: list[dict[str, float]]) -> None:
    """The same run, whose client and whose server are killed in the middle."""
    config, run = folder / f"{SHORT.name}.yaml", folder / "killed"
    client = begin(run, config)
    wait_for(lambda: len(metrics(run)) >= 1, 900)
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    done = len(metrics(run))
    client = begin(run, config, "--resume")
    wait_for(lambda: len(metrics(run)) >= SHORT.warm + 1, 900)
    server.kill()
    start, at = time.monotonic(), len(metrics(run))
    code = client.wait()
    said = (folder / "killed.log").read_text(encoding="utf-8", errors="replace")
    words = f"client killed after line {done} of its metrics, resumed; server killed after line {at}: the client ends after"
    words += f" {time.monotonic() - start:.0f} s with exit code {code} and says how to go on"
    log.demand(code == 2 and "--resume" in said, words)
    again = server.start()
    code = begin(run, config, "--resume").wait()
    found = metrics(run)
    steps = [int(line["step"]) for line in found]
    log.demand(code == 0 and steps == [int(line["step"]) for line in whole], f"started again ({again:.0f} s), run resumed: steps {steps}, "
               "as without interruption")  # fmt: skip
    common, gap = apart(whole, found)
    words = f"{common} numbers of its cloning and learning are those of the uninterrupted run to {gap:.2g}: no step was lost or repeated"
    log.demand(common > SHORT.warm and gap < 1e-4, words)


def sharded(log: Log, server: Server, folder: Path, whole: list[dict[str, float]]) -> None:
    """Four devices, two ways of sharding."""
    start, run = time.monotonic(), folder / "sharded"
    code = begin(run, replace(SHORT, name="four").write(server.url, server.base, folder)).wait()
    found = metrics(run)
    pairs = [
        (a["cloning/loss"], b["cloning/loss"]) for a, b in zip(whole, found, strict=False) if "cloning/loss" in a and "cloning/loss" in b
    ]
    gap = max((abs(a - b) for a, b in pairs), default=float("nan"))
    words = f"a run on 4 devices, FSDP 2 x TP 2, ends ({time.monotonic() - start:.0f} s): "
    words += f"{len(pairs)} cloning losses within {gap:.2g} of one device's"
    log.demand(code == 0 and len(pairs) == SHORT.warm and gap < 1e-4, words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="Python of the environment that holds SkyRL")
    parser.add_argument("--log", type=Path, help="write what was measured to this page")
    parser.add_argument("--short", action="store_true", help="without learning and four devices")
    parser.add_argument(
        "--stages", default="", help="of check, exactness, sharing, run, kill, devices; by default all (--short: without run and devices)"
    )
    parser.add_argument("--arms", default=",".join(LEARNING), help="of the stage run: outcome, judge")
    parser.add_argument("--seeds", default="11", help="of the stage run: 11,12,13 learns with each of these")
    parser.add_argument("--base", type=Path, help="a base made before")
    parser.add_argument("--cold", action="store_true", help="forget first what servers have compiled and left on disk")
    parser.add_argument("--keep", type=Path, help="work in this folder, and keep it")
    arguments = parser.parse_args()
    usual = ["check", "exactness", "sharing", *([] if arguments.short else ["run"]), "kill", *([] if arguments.short else ["devices"])]
    stages = arguments.stages.split(",") if arguments.stages else usual
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    arms = [LEARNING[name] for name in arguments.arms.split(",")] if "run" in stages else []
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="stepwell-remote-"))
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(arguments.log)
    version = subprocess.run([arguments.server, "-c", "import importlib.metadata as m; print(m.version('skyrl'), m.version('jax'))"],
                             capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    words = f"{time.strftime('%d %B %Y')}: SkyRL {version[0]} with JAX {version[1]} on CPU, {os.cpu_count()} cores at a load of {load()} "
    log.say(f"{words}when it began; a Llama of 2 layers and width 64; LoRA rank 8.")
    log.say()
    base = arguments.base or make_base(folder)
    servers: list[Server] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the servers go too
    try:
        server = Server(arguments.server, base, folder / "work")
        servers.append(server)
        log.say("## One device")
        log.say()
        if arguments.cold:
            shutil.rmtree(server.compiled, ignore_errors=True)
        words = "what it compiles lies on disk" if server.compiled.is_dir() else "it has never compiled anything"
        log.say(f"- up in {server.start():.0f} s; {words}")
        if "check" in stages:
            check(log, server, again=not arguments.short)
        for line, passed in compare(server.url, base, folder / "work" / "checkpoints") if "exactness" in stages else ():
            log.demand(passed, line)
        if "sharing" in stages:
            words, passed = share(server.url, base)
            log.demand(passed, words)
        for plan in arms:
            over_seeds(
                log, plan, seeds, [learning(log, server, folder, replace(plan, name=f"{plan.name}-{seed}", seed=seed)) for seed in seeds]
            )
        whole = uninterrupted(log, server, folder) if {"kill", "devices"} & set(stages) else []
        if whole and "kill" in stages:
            killed_run(log, server, folder, whole)
        server.kill()
        if whole and "devices" in stages:
            four_devices(log, arguments.server, folder, servers, whole)
    finally:
        for client in CLIENTS:
            client.kill()
        for one in servers:
            with suppress(Exception):
                one.kill()
    finish(log, folder if arguments.keep is None else None)


def four_devices(log: Log, python: str, folder: Path, servers: list[Server], whole: list[dict[str, float]]) -> None:
    log.say()
    log.say("## Four devices, FSDP 2 x TP 2")
    log.say()
    server = Server(python, servers[0].base, folder / "work4", devices=4)
    servers.append(server)
    log.say(f"- up in {server.start():.0f} s")
    sharded(log, server, folder, whole)


def load() -> str:
    """Processes that wanted to compute, over the last 15 minutes."""
    return f"{os.getloadavg()[2]:.1f}"


def finish(log: Log, folder: Path | None) -> None:
    """The last line and the exit code."""
    log.say()
    log.say(f"{len(log.failed)} failed; {time.monotonic() - log.start:.0f} s in all; load {load()} at the end.")
    if folder is not None and not log.failed:
        shutil.rmtree(folder, ignore_errors=True)
    passed = sum(line.startswith("- passed") for line in log.lines)
    print(f"{passed} passed, {len(log.failed)} failed")
    raise SystemExit(1 if log.failed else 0)


if __name__ == "__main__":
    main()
