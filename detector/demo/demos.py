"""The demos of ``stilltrue demo``: each runs a scene, narrates it, and checks that the verdicts are right."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from itertools import cycle
from typing import Any

import grpc
from rich.console import Console
from rich.progress import Progress

from detector.core.verdict import write_verdict
from detector.demo.harness import Harness, HarnessError
from detector.demo.scenes import HEALTHY
from stilltrue import Detector

POLL_SECONDS = 0.2
ANSWER_SECONDS_MAX = 60.0
PAGE_SECONDS_MAX = 60.0
"""Generous, since a machine under load may take long to serve a page."""
JOB_STRENGTH = 10
HEALTHY_SCENE = "detector.demo.scenes:HEALTHY"
HEALTHY_LOADS = ("web", "app", "rush", "queue", "street", "clerk")
"""The callers whose calls are counted."""
UNDETERMINED = 3
"""Exit code of ``ask``."""
RESTART_SECONDS = 5.0
"""Interval of the rolling restart."""


class Demo:
    """A harness with a console: shows the commands that it runs, and checks their results."""

    def __init__(self, harness: Harness, console: Console) -> None:
        """``console`` shows the narration."""
        self.harness = harness
        self.console = console

    def say(self, text: str) -> None:
        """Print one paragraph; a terminal wraps it between words."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def command(self, *arguments: str, exit_codes: tuple[int, ...] = (0,)) -> int:
        """Show a command as a user would type it, run it, and show its output, which fits the terminal if there is one."""
        self.console.print(f"\n[bold]$ stilltrue {' '.join(arguments)}[/bold]", highlight=False)
        captured = not self.console.is_terminal
        done = self.harness.run(*arguments, captured=captured)
        if captured:
            self.console.print((done.stdout + done.stderr).rstrip(), markup=False, highlight=False, soft_wrap=True)
        if done.returncode not in exit_codes:
            raise HarnessError(f"'stilltrue {' '.join(arguments)}' exited with {done.returncode}, expected {exit_codes}")
        return done.returncode

    def verdict(self, predicate: str) -> dict[str, Any]:
        """Take a snapshot now; returns the verdict as ``stilltrue ask --json`` prints it."""
        try:
            with Detector(self.harness.detector) as detector:
                return write_verdict(detector.ask(predicate))
        except grpc.RpcError as error:
            raise HarnessError(f"the detector at {self.harness.detector} did not answer: {error}") from error

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` returns true, for a bounded time."""
        give_up = time.monotonic() + ANSWER_SECONDS_MAX
        while not condition():
            if time.monotonic() > give_up:
                raise HarnessError(f"timed out after {ANSWER_SECONDS_MAX:g} s waiting for {what}")
            time.sleep(POLL_SECONDS)

    def watch_load(self, name: str, seconds: float) -> None:
        """Show the throughput of a caller for ``seconds``."""
        before = self.harness.stats(name)
        for _ in range(round(seconds / 0.5)):
            time.sleep(0.5)
            now = self.harness.stats(name)
            rate = 2 * (now["done"] - before["done"])
            self.say(f"   {rate:5d} calls/s done, {now['waiting']:3d} waiting, {now['failed']:2d} failed")
            before = now

    def metric(self, name: str) -> None:
        """Show the samples of one metric."""
        lines = [line for line in self._page() if line.startswith(name) and line.endswith(" 1.0")]
        self.console.print(f"\n[bold]$ curl -s http://{self.harness.http}/metrics | grep {name}[/bold]", highlight=False)
        self.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def count(self, counter: str) -> int:
        """The sum of a counter over its labels."""
        lines = [line for line in self._page() if line.startswith(counter + "{")]
        return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines))

    def _page(self) -> list[str]:
        with urllib.request.urlopen(f"http://{self.harness.http}/metrics", timeout=PAGE_SECONDS_MAX) as page:
            return list(page.read().decode().splitlines())

    def picture(self) -> None:
        """Draw the wait-for graph of the newest snapshot into a file."""
        drawn = self.harness.run("show", "latest", "--format", "svg")
        if drawn.returncode or "<svg" not in drawn.stdout:
            raise HarnessError(f"'stilltrue show' drew nothing: {drawn.stderr.strip()}")
        path = self.harness.folder / "deadlock.svg"
        path.write_text(drawn.stdout)
        self.console.print(f"\nThe picture: [bold]{path}[/bold]", soft_wrap=True)


def pools(demo: Demo) -> None:
    """Worker pools that call each other in a cycle."""
    demo.say("[bold]Three services with pools of 2 workers call each other: orders -> stock -> billing -> orders.[/bold]")
    demo.harness.start_scene("detector.demo.scenes:POOLS")
    demo.say("Light load, one caller:")
    demo.watch_load("load", 2)
    demo.command("ask", "deadlock", exit_codes=(1,))
    demo.say("\nThe load rises to 6 callers. Nothing crashes and nothing is logged; requests just hang:")
    demo.harness.processes["load"].tell({"threads": 6})
    demo.watch_load("load", 2.5)
    demo.until("the deadlock", lambda: demo.verdict("deadlock")["holds"] is True)
    demo.command("ask", "deadlock")
    demo.command("incidents")
    demo.picture()
    demo.metric("stilltrue_predicate_state")


def locks(demo: Demo) -> None:
    """Locks taken in opposite orders, across processes."""
    demo.say("[bold]orders holds its lock and calls stock, which needs its own lock; stock does the reverse.[/bold]")
    demo.harness.start_scene("detector.demo.scenes:LOCKS")
    demo.say("Only the shop is calling:")
    demo.watch_load("shop", 1.5)
    demo.command("ask", "deadlock", exit_codes=(1,))
    demo.say("\nNow the warehouse restocks as well:")
    demo.harness.processes["warehouse"].tell({"threads": 2})
    demo.watch_load("shop", 2)
    demo.until("the deadlock", lambda: demo.verdict("deadlock")["holds"] is True)
    demo.command("ask", "deadlock")
    demo.picture()


def job(demo: Demo) -> None:
    """A distributed job whose end no single process can see."""
    demo.say(
        "[bold]Four processes share a job that a fifth begins: each piece of work creates two more, for random others. "
        "When is it done?[/bold]"
    )
    demo.harness.start_scene("detector.demo.scenes:JOB")
    demo.harness.processes["starter"].tell({"call": {"method": "ada.Work", "count": 1, "strength": JOB_STRENGTH}})
    demo.until(
        "the job to begin", lambda: demo.verdict("termination")["holds"] is False
    )  # before it starts, all processes are idle: TRUE
    begun = time.monotonic()
    while (verdict := demo.verdict("termination"))["holds"] is not True:
        still, _, _ = verdict["witness"]["text"].partition("; ")  # the rest is the same in each line
        demo.say(f"   {time.monotonic() - begun:4.1f} s  {still}")
        if time.monotonic() - begun > ANSWER_SECONDS_MAX:
            raise HarnessError("the job did not finish in time")
        time.sleep(POLL_SECONDS)
    demo.command("ask", "termination")


def healthy(demo: Demo, seconds: float) -> None:
    """A busy shop that never deadlocks."""
    demo.say("[bold]Call cycles, full pools, fan-outs, hedged calls, locks and deadlines under load, but no deadlock.[/bold]")
    demo.say("Also limiters, callbacks that send, forwarded metadata, a gateway, connection age, a rolling restart.")
    demo.harness.start_scene(HEALTHY_SCENE)
    restarting = cycle(HEALTHY.restarting)
    begun = last = time.monotonic()
    done = 0
    with Progress(*Progress.get_default_columns(), console=demo.console) as progress:
        task = progress.add_task("healthy", total=seconds)
        while (spent := time.monotonic() - begun) < seconds:
            time.sleep(min(1.0, seconds - spent))
            if time.monotonic() - last > RESTART_SECONDS:
                demo.harness.restart(HEALTHY_SCENE, next(restarting))
                last = time.monotonic()
            before, done = done, sum(demo.harness.stats(load)["done"] for load in HEALTHY_LOADS)
            snapshots, incidents = demo.count("stilltrue_snapshots_total"), demo.count("stilltrue_incidents_total")
            counts = f"{done} calls, {snapshots} snapshots, {incidents} incidents"
            progress.update(task, completed=time.monotonic() - begun, description=counts)
            if incidents:
                raise HarnessError(f"a false TRUE: {demo.harness.run('incidents', '--json').stdout}")
            if done == before:
                raise HarnessError("the shop has stopped making progress")
    idle = [load for load in HEALTHY_LOADS if not demo.harness.stats(load)["done"]]
    if idle:
        raise HarnessError(f"no call of these was ever answered: {', '.join(idle)}")
    demo.say(f"{counts}: no deadlock.")
    if demo.command("ask", "deadlock", exit_codes=(1, UNDETERMINED)) == UNDETERMINED:
        demo.say("Undetermined, since not every process reported in time: the machine is busy, or one was just restarting.")


DEMOS: dict[str, Callable[[Demo, float], None]] = {
    "pools": lambda demo, _: pools(demo),
    "locks": lambda demo, _: locks(demo),
    "job": lambda demo, _: job(demo),
    "healthy": healthy,
}
