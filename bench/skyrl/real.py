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
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from exactness import compare

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STEPWELL = [str(Path(sys.executable).parent / "stepwell")]
BACKEND = {"max_lora_adapters": 24, "max_lora_rank": 8, "train_micro_batch_size": 8, "sample_max_num_sequences": 16}
DOMAIN = "{kind: maze, view: place, difficulty: [0, 0], test_tasks: 40}"
ROLLOUT = "{groups: 4, group_size: 8, turns: 8, max_tokens: 6}"
CLONING, LEARNING, EPISODES = 20, 3, 40
"""Steps of a run; `--short` makes them few."""
RUN = f"""
name: real
steps: STEPS
domain: {DOMAIN}
engine: {{kind: remote, url: "URL", model: BASE, rank: 8, threads: 1, gone_s: 8.0, timeout_s: 600.0}}
chat: {{tools: false, context: observation}}
cloning: {{steps: WARM, batch: 8, optimizer: {{kind: adamw, lr: 3e-3, warmup: 0, decay: linear, max_grad_norm: 1e6}}}}
rollout: {ROLLOUT}
reward: {{kind: implicit, model: lora, lr: 1e-3, max_grad_norm: 1e6}}
credit: {{kind: istar, alpha: 0.1}}
curriculum: {{kind: uniform, difficulty: [0, 0]}}
optimizer: {{lr: 1e-3, max_grad_norm: 1e6}}
evaluation: {{every: 0, episodes: EPISODES, during: 8}}
checkpoint: {{every: 1}}
"""


class Server:
    """A SkyRL server and its engine, in a process group of their own."""

    def __init__(self, python: str, base: Path, work: Path, *, devices: int = 1) -> None:
        self.python, self.base, self.work = python, base, work
        self.devices = devices
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
            "JAX_COMPILATION_CACHE_DIR": str(Path(self.python).absolute().parents[1] / "compiled"),
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


class Log:
    """What was found, as lines of Markdown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed: list[str] = []
        self.start = time.monotonic()

    def say(self, line: str = "") -> None:
        self.lines.append(line)
        print(f"[{time.monotonic() - self.start:5.0f} s] {line}", flush=True)

    def demand(self, passed: bool, line: str) -> None:
        self.say(f"- {'passed' if passed else '**FAILED**'}: {line}")
        if not passed:
            self.failed.append(line)


def stepwell(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STEPWELL, *arguments], capture_output=True, text=True, **settings)


def config_text(server: Server) -> str:
    text = RUN.replace("URL", server.url).replace("BASE", str(server.base))
    return text.replace("STEPS", str(LEARNING)).replace("WARM", str(CLONING)).replace("EPISODES", str(EPISODES))


def make_base(folder: Path) -> Path:
    """A tiny model that has learnt the maze a little, written to disk."""
    settings = ["domain.kind=maze", "domain.view=place", "domain.difficulty=[0,0]", "domain.test_tasks=40"]
    settings += ["engine.width=64", "engine.feedforward=128", "engine.max_length=256", "engine.threads=1", "chat.context=observation"]
    settings += ["cloning.steps=60", "cloning.batch=16", "steps=0", "evaluation.every=0", "evaluation.episodes=8"]
    settings += ["rollout.turns=8", "rollout.max_tokens=6"]
    for command in (
        ["train", "smoke", *settings, "--run", str(folder / "base-run")],
        ["export", str(folder / "base-run"), str(folder / "base")],
    ):
        made = stepwell(*command)
        if made.returncode:
            raise SystemExit(f"no base: {made.stderr}")
    return folder / "base"


def metrics(run: Path) -> list[dict[str, float]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def check(log: Log, server: Server) -> None:
    """`stepwell engine check` must find nothing."""
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


def begin(run: Path, config: Path, *more: str) -> subprocess.Popen[bytes]:
    out = (run.parent / f"{run.name}.log").open("ab")
    command = [*STEPWELL, "train", str(config), "--run", str(run), *more]
    return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def wait_for(condition: Callable[[], bool], limit_s: float) -> bool:
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if condition():
            return True
        time.sleep(0.2)
    return False


def whole_run(log: Log, server: Server, folder: Path) -> list[dict[str, float]]:
    """Policy and judge, without interruption: does it learn?"""
    config, run = folder / "run.yaml", folder / "whole"
    config.write_text(config_text(server), encoding="utf-8")
    start = time.monotonic()
    ended = begin(run, config).wait()
    found = metrics(run)
    losses = [line["cloning/loss"] for line in found if "cloning/loss" in line]
    log.demand(ended == 0 and len(losses) == CLONING, f"a run of {CLONING} steps of cloning and {LEARNING} of learning ends "
               f"({time.monotonic() - start:.0f} s)")  # fmt: skip
    if not losses:
        return found
    tail = min(5, CLONING // 3)
    first, last = sum(losses[:tail]) / tail, sum(losses[-tail:]) / tail
    log.demand(last < first, f"cloning loss over the wire: {first:.3f} (first {tail} steps) to {last:.3f} (last {tail})")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    log.say(f"- success on {EPISODES} held-out tasks before and after: `{json.dumps(_success(report))}`")
    learnt = [line for line in found if "policy/grad_norm" in line]
    log.demand(bool(learnt) and learnt[0]["judge/log_ratio_abs"] == 0.0, "the judge, which starts as the policy, says exactly 0 at first")
    ratios = [float(f"{line['judge/log_ratio_abs']:.2g}") for line in learnt]
    if any(line["judge/mixed_groups"] for line in learnt[:-1]):
        log.demand(any(ratios[1:]), f"and something else once it has learnt: log-ratios {ratios}")
    else:
        log.say(f"- no group of the first steps held better and worse episodes, so that the judge had nothing to learn from: {ratios}")
    worst = max(line["sampler/mismatch_rms"] for line in learnt)
    log.demand(worst < 1e-3, f"sampler and trainer differ by {worst:.2g} nats (rms) at most")
    return found


def _success(report: Any) -> Any:
    return {name: report[name] for name in ("success", "success_greedy") if name in report}


def killed_run(log: Log, server: Server, folder: Path, whole: list[dict[str, float]]) -> None:
    """The same run, whose client and whose server are killed in the middle."""
    config, run = folder / "run.yaml", folder / "killed"
    client = begin(run, config)
    wait_for(lambda: len(metrics(run)) >= CLONING // 4, 600)
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    done = len(metrics(run))
    client = begin(run, config, "--resume")
    wait_for(lambda: len(metrics(run)) >= CLONING // 2 + 1, 600)
    server.kill()
    start = time.monotonic()
    code = client.wait()
    said = (folder / "killed.log").read_text(encoding="utf-8", errors="replace")
    log.demand(code == 2 and "--resume" in said, f"client killed after step {done}, resumed; server killed: the client ends after "
               f"{time.monotonic() - start:.0f} s with exit code {code} and says how to go on")  # fmt: skip
    again = server.start()
    code = begin(run, config, "--resume").wait()
    found = metrics(run)
    steps = [int(line["step"]) for line in found]
    log.demand(code == 0 and steps == list(range(min(steps), CLONING + LEARNING + 1)), f"started again ({again:.0f} s), run resumed: "
               f"steps {steps[0]} to {steps[-1]}, each once")  # fmt: skip
    pairs = [(a["cloning/loss"], b["cloning/loss"]) for a, b in zip(whole, found, strict=False) if "cloning/loss" in a]
    gap = max(abs(a - b) for a, b in pairs)
    log.demand(len(pairs) == CLONING and gap < 1e-4, f"its {len(pairs)} cloning losses are those of the uninterrupted run to {gap:.2g}: "
               "no step was lost or repeated")  # fmt: skip


def sharded(log: Log, server: Server, folder: Path, whole: list[dict[str, float]]) -> None:
    """Four devices, two ways of sharding."""
    config, run = folder / "sharded.yaml", folder / "sharded"
    text = config_text(server).replace(f"steps: {LEARNING}\n", "steps: 1\n")
    config.write_text(text.replace(f"episodes: {EPISODES}", "episodes: 4"), encoding="utf-8")
    code = begin(run, config).wait()
    found = metrics(run)
    pairs = [
        (a["cloning/loss"], b["cloning/loss"]) for a, b in zip(whole, found, strict=False) if "cloning/loss" in a and "cloning/loss" in b
    ]
    gap = max((abs(a - b) for a, b in pairs), default=float("nan"))
    log.demand(code == 0 and gap < 1e-2, f"a run on 4 devices, FSDP 2 x TP 2: {len(pairs)} cloning losses within {gap:.2g} of one device's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="Python of the environment that holds SkyRL")
    parser.add_argument("--log", type=Path, help="write what was measured to this page")
    parser.add_argument("--short", action="store_true", help="fewer steps, one device")
    parser.add_argument("--stages", default="", help="of check, exactness, run, kill, devices; by default all (--short: but devices)")
    parser.add_argument("--base", type=Path, help="a base made before")
    parser.add_argument("--keep", type=Path, help="work in this folder, and keep it")
    arguments = parser.parse_args()
    if arguments.short:
        globals().update(CLONING=8, LEARNING=2, EPISODES=16)
    usual = ["check", "exactness", "run", "kill", *([] if arguments.short else ["devices"])]
    stages = arguments.stages.split(",") if arguments.stages else usual
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="stepwell-remote-"))
    folder.mkdir(parents=True, exist_ok=True)
    log = Log()
    version = subprocess.run([arguments.server, "-c", "import importlib.metadata as m; print(m.version('skyrl'), m.version('jax'))"],
                             capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    log.say(f"SkyRL {version[0]} with JAX {version[1]} on CPU, {os.cpu_count()} cores; a Llama of 2 layers, width 64; LoRA rank 8.")
    log.say()
    base = arguments.base or make_base(folder)
    servers: list[Server] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the servers go too
    try:
        server = Server(arguments.server, base, folder / "work")
        servers.append(server)
        log.say("## One device")
        log.say()
        log.say(f"- up in {server.start():.0f} s")
        if "check" in stages:
            check(log, server)
        for line, passed in compare(server.url, base, folder / "work" / "checkpoints") if "exactness" in stages else ():
            log.demand(passed, line)
        whole = whole_run(log, server, folder) if "run" in stages else []
        if whole and "kill" in stages:
            killed_run(log, server, folder, whole)
        server.kill()
        if "devices" in stages:
            four_devices(log, arguments.server, folder, servers, whole)
    finally:
        for one in servers:
            with suppress(Exception):
                one.kill()
    finish(log, arguments.log, folder if arguments.keep is None else None)


def four_devices(log: Log, python: str, folder: Path, servers: list[Server], whole: list[dict[str, float]]) -> None:
    log.say()
    log.say("## Four devices, FSDP 2 x TP 2")
    log.say()
    server = Server(python, servers[0].base, folder / "work4", devices=4)
    servers.append(server)
    log.say(f"- up in {server.start():.0f} s")
    if not whole:
        check(log, server)
        return
    sharded(log, server, folder, whole)


def finish(log: Log, page: Path | None, folder: Path | None) -> None:
    """The last line, the page, and the exit code."""
    log.say()
    log.say(f"{len(log.failed)} failed; {time.monotonic() - log.start:.0f} s in all.")
    if page:
        head = "# The log of scripts/test-remote\n\nWritten by `./scripts/test-remote --log docs/remote-log.md`.\n\n"
        page.write_text(head + "\n".join(log.lines) + "\n", encoding="utf-8")
    if folder is not None and not log.failed:
        shutil.rmtree(folder, ignore_errors=True)
    passed = sum(line.startswith("- passed") for line in log.lines)
    print(f"{passed} passed, {len(log.failed)} failed")
    raise SystemExit(1 if log.failed else 0)


if __name__ == "__main__":
    main()
