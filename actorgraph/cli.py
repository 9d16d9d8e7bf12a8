"""The command `actorgraph`: training demo, traces, pipelines, serving, and this machine.

Each command imports what it needs when it runs.  Exit codes: 0, 1 for an error, which is printed
with its notes, 2 for bad usage, 130 after Ctrl-C.
"""

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from typing import Any

from actorgraph._progress import progress_for
from actorgraph._version import __version__
from actorgraph.errors import GraphError, printable, shown
from actorgraph.tables import console

_EXPONENT = re.compile(r"e[+-]?0*[1-9][0-9]{3}", re.IGNORECASE)
_WORKERS = 1 << 16
_SEEDS = (1 << 63) - 1
_BAD_USAGE = 2  # as argparse
_INTERRUPTED = 128 + 2  # the shell's code for a program ended by SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process; return the exit code.

    Raises `SystemExit` after ``--help``, ``--version`` and bad usage, as argparse does.
    """
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        command(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("actorgraph: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader is gone; the interpreter would report an error when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if not isinstance(error, (GraphError, MemoryError, OSError)):
            raise  # our bug: a report needs the traceback
        return _failed(error)
    return 0


_Option = tuple[tuple[str, ...], dict[str, Any]]


def _option(*names: str, **how: Any) -> _Option:
    return names, how


def _command(
    commands: Any, name: str, run: Callable[..., None], help_: str, about: str, *options: _Option
) -> argparse.ArgumentParser:
    """Add a command with its function, its line of help, its page, and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=about)
    parser.set_defaults(command=run)
    for names, how in options:
        parser.add_argument(*names, **how)
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="actorgraph", description="A concurrent executor for differentiable array graphs."
    )
    parser.add_argument("--version", action="version", version=f"actorgraph {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    json_option = _option("--json", action="store_true", help="print one JSON object")
    target = _option("target", metavar="FILE.py:FUNCTION", help="what returns (outputs, feeds)")
    _command(
        commands, "demo", _demo, "train networks on handwritten digits and watch the actors",
        "Train four networks on 1,438 handwritten digits, every operation as an actor, test them "
        "on 359 others, and measure one worker thread against several.",
        _option("--workers", type=_at_least(1, _WORKERS), default=2, help="worker threads (2)"),
        _option("--epochs", type=_at_least(1, 10_000), default=12,
                help="passes over the images (12)"),
        _option("--seed", type=_at_least(0, _SEEDS), default=0,
                help="seed of weights and order (0)"),
        _option("--json", action="store_true", help="print one JSON object and nothing else"),
    )  # fmt: skip
    _command(
        commands, "doctor", _doctor, "show versions, cores, BLAS and GPUs",
        "Show what actorgraph finds here, and what to install for more.", json_option,
    )  # fmt: skip
    _add_recordings(commands, target)
    _add_pipeline(commands, target)
    _command(
        commands, "calibrate", _calibrate, "measure this machine for the cost model",
        "Measure in some 5 seconds the speed of calls, additions, memory and matrix products on "
        "this machine, store it in the cache directory, and say which provider of matrix products "
        "is faster here. The figures decide where nodes run, never what they compute.", json_option,
    )  # fmt: skip
    _add_serving(commands, json_option)
    _command(
        commands, "explain", _explain, "say what an error means, by its code",
        "Print what an error means, a program that raises it, and the repair. The code is at the "
        "end of the traceback.",
        _option("code", metavar="CODE", help="such as AG101; `all` prints every error"),
    )  # fmt: skip
    return parser


def _add_recordings(commands: Any, target: _Option) -> None:
    backward = _option("--backward", action="store_true", help="differentiate the first output")
    _command(
        commands, "trace", _trace, "record runs of a graph: where the time goes",
        "Call the function, which returns (outputs, feeds), run the graph, print a summary, and "
        "write PREFIX.json for https://ui.perfetto.dev and PREFIX.html.", target,
        _option("--machine", choices=("actor", "lisp", "tape"), default="actor",
                help="kind of machine (actor)"),
        _option("--workers", type=_at_least(1, _WORKERS), help="worker threads (all cores)"),
        _option("--fuse", choices=("none", "auto", "all"), default="auto", help="fusion (auto)"),
        _option("--runs", type=_at_least(1), default=1, help="number of runs, pipelined (1)"),
        backward,
        _option("--cold", action="store_true", help="record the compilation, too"),
        _option("-o", "--output", metavar="PREFIX", help="prefix of the files (the function)"),
    )  # fmt: skip
    kinds = commands.add_parser("devices", help="how lanes and devices speed up a graph")
    _command(
        kinds.add_subparsers(metavar="COMMAND", required=True), "experiment", _experiment,
        "run a graph on 1 to 8 lanes, simulated or measured",
        "Show the time of a run by the number of lanes (CUDA streams), eager and captured, on "
        "simulated GPUs; or measure it on devices of this machine.", target,
        _option("--lanes", type=_at_least(1, 64), nargs="+", default=[1, 2, 4, 8],
                help="numbers of lanes (1 2 4 8)"),
        _option("--gpus", type=_at_least(1, 64), default=1, help="simulated GPUs (1)"),
        _option("--measure", metavar="DEVICE", nargs="+",
                help="measure on these devices, such as virtual:0 or cuda:0"),
        backward,
        _option("-o", "--output", metavar="FILE", help="write a page with the best timeline"),
    )  # fmt: skip


def _add_serving(commands: Any, json_option: _Option) -> None:
    _command(
        commands, "top", _top, "watch the machines of a running program",
        "Show actors, queues, throughput and lateness of a program that runs `with "
        "ag.trace.serve(SOCKET): ...`; Ctrl-C ends it.",
        _option("socket", metavar="SOCKET", help="the path at which the program serves"),
        _option("--every", type=_at_least(1), default=1, help="seconds between updates (1)"),
        _option("--once", action="store_true", help="show one update and end"),
    )  # fmt: skip
    _command(
        commands, "serve", _serve, "serve a model over HTTP",
        "Call the function of FILE.py:FUNCTION, which returns an ag.serving.Server, or (outputs, "
        "feeds) to serve one model under the function's name; or take a folder of models, "
        "NAME/model.py. Answer requests of the Open Inference Protocol by uvicorn, and over gRPC "
        "with --grpc-port. After SIGTERM or Ctrl-C, requests that were accepted are answered; a "
        "second signal ends at once.",
        _option("target", metavar="TARGET", help="FILE.py:FUNCTION, or a folder"),
        _option("--host", default="127.0.0.1", help="host to listen at (127.0.0.1)"),
        _option("--port", type=_at_least(0, 65535), default=8000,
                help="port to listen at; 0 for any (8000)"),
        _option("--grpc-port", type=_at_least(0, 65535),
                help="port for gRPC; 0 for any"),
        _option("--metrics-port", type=_at_least(0, 65535),
                help="separate port for /metrics; further workers use the next ports; 0 for any"),
        _option("--config", metavar="FILE.toml", help="fields of ag.serving.Config"),
        _option("--workers", type=_at_least(1, _WORKERS), default=1,
                help="processes that listen at the same ports and share nothing (1)"),
        _option("--reload", action="store_true", help="restart when a file beside FILE.py "
                "changes; reload a model of a folder when its files change"),
        _option("--drain-delay", type=_number, metavar="SECONDS",
                help="after a signal, accept requests for so long while /readyz returns 503 "
                "(drain_delay_s of the config, or 5 in Kubernetes)"),
        _option("--no-access-log", action="store_true",
                help="do not log each request for inference"),
        _option("--supervised", action="store_true", help=argparse.SUPPRESS),
    )  # fmt: skip
    _command(
        commands, "bench", _bench, "measure the latency of a served model",
        "Send requests of the Open Inference Protocol to a model at a fixed rate, whether it keeps "
        "up or not, and show status codes, percentiles of the latency from when a request was due, "
        "and a histogram.",
        _option("url", metavar="URL", help="http://HOST:PORT/v2/models/NAME"),
        _option("--rate", type=_positive, default=100.0, help="requests per second (100)"),
        _option("--seconds", type=_positive, default=5.0, help="duration (5)"),
        _option("--rows", type=_at_least(1), default=1, help="rows of a request (1)"), json_option,
    )  # fmt: skip


_SCHEDULES = ("stages", "microbatches", "schedule", "load", "save", "json")


def _schedules(**defaults: Any) -> list[_Option]:
    """Return the options that simulations and runs share."""
    known: dict[str, dict[str, Any]] = {
        "stages": {"type": _at_least(1),
                   "help": "number of devices (4; for a run that of the placements)"},
        "microbatches": {"type": _at_least(1), "help": "microbatches of a step (8)"},
        "schedule": {"action": "extend", "type": _names, "metavar": "NAMES",
                     "help": "schedules to compare, separated by commas (all; for a run 1f1b)"},
        "load": {"metavar": "FILE.csv", "help": "take the schedule of a file instead"},
        "save": {"metavar": "FILE.csv", "help": "write the actions of the fastest"},
        "json": {"action": "store_true", "help": "print one JSON array"},
    }  # fmt: skip
    return [_option(f"--{name}", default=defaults[name], **how) for name, how in known.items()]


def _add_pipeline(commands: Any, target: _Option) -> None:
    parser = _command(
        commands, "pipeline", _pipeline, "compare schedules of a pipeline, simulated or run",
        "Simulate schedules of a pipeline and show their times in a table, and the fastest one as "
        "a picture. Times are for one microbatch on one device, in any unit. `actorgraph pipeline "
        "run` measures them instead.",
        *_schedules(stages=None, microbatches=8, schedule=None, load=None, save=None, json=False),
        _option("--costs", type=_numbers(3), metavar="F,B,W",
                help="times of forward, backward to the inputs, backward to the weights (1,1,1)"),
        _option("--latency", type=_number, help="time of a message (0)"),
        _option("--memory", type=_number,
                help="activations that fit on a device, in microbatches"),
    )  # fmt: skip
    _command(
        parser.add_subparsers(metavar="run"), "run", _pipeline_run,
        "run your graph by schedules, and measure",
        "Call the function, which returns (outputs, feeds), the loss first, run the batch in "
        "microbatches by each schedule, including gradients of all parameters, and show measured "
        "and predicted makespans, and the fastest as a picture. Nodes are placed by `with "
        "graph.stage(0): ...`, else the graph is cut by cost.", target,
        # Options before the word `run` hold unless they are repeated after it.
        *_schedules(**dict.fromkeys(_SCHEDULES, argparse.SUPPRESS)),
        _option("--split", default="batch", metavar="DIM", help="dim of the batch (batch)"),
        _option("--reduce", choices=("mean", "sum"), help="how your own ops reduce rows"),
        _option("--workers", type=_at_least(1, _WORKERS), help="threads (one per device)"),
        _option("--runs", type=_at_least(1), default=5, help="runs of each schedule (5)"),
    )  # fmt: skip


def _positive(text: str) -> float:
    value = float(_number(text))
    if not value:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not more than 0")
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _number(text: str) -> Fraction:
    value = Fraction(-1)
    if _EXPONENT.search(text) is None:  # a Fraction of 1e99999999 would have all these digits
        with suppress(ValueError, ZeroDivisionError):
            value = Fraction(text)
    if not (value == 0 or 1e-100 <= value <= 1e100):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number from 0 to 1e100")
    return value


def _numbers(count: int) -> Callable[[str], list[Fraction]]:
    def numbers(text: str) -> list[Fraction]:
        parts = text.split(",")
        if len(parts) != count:
            what = f"is not {count} numbers with commas between"
            raise argparse.ArgumentTypeError(f"{shown(text)} {what}")
        return [_number(part) for part in parts]

    return numbers


def _at_least(smallest: int, largest: int = 1_000_000) -> Callable[[str], int]:
    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if value < smallest:
            what = f"a whole number of at least {smallest}"
            raise argparse.ArgumentTypeError(f"{shown(text)} is not {what}")
        if value > largest:
            raise argparse.ArgumentTypeError(f"{shown(text)} is more than {largest:,}")
        return value

    return integer


def _demo(arguments: argparse.Namespace) -> None:
    from actorgraph._demo import train

    progress = progress_for(sys.stdout, silent=arguments.json)
    outcome = train(arguments.workers, arguments.epochs, arguments.seed, progress)
    print(json.dumps(asdict(outcome)) if arguments.json else "\n".join(outcome.lines()))


def _explain(arguments: argparse.Namespace) -> None:
    from importlib.resources import files

    text = files("actorgraph").joinpath("explanations.md").read_text("utf-8")
    sections = {one.partition("\n")[0]: one for one in text.split("\n## ")[1:]}
    code = arguments.code.upper()
    if code != "ALL" and code not in sections:
        raise GraphError(
            f"there is no code {shown(arguments.code)}; known are {', '.join(sections)}"
        )
    print(text if code == "ALL" else sections[code])


def _doctor(arguments: argparse.Namespace) -> None:
    from actorgraph._doctor import describe, examine

    findings = examine()
    print(json.dumps(findings) if arguments.json else "\n".join(describe(findings)))


def _trace(arguments: argparse.Namespace) -> None:
    from actorgraph.trace.command import hint, trace

    prefix = arguments.output or arguments.target.rpartition(":")[2]
    folder = os.path.dirname(prefix) or "."
    if not os.path.isdir(folder):
        raise GraphError(f"there is no folder {folder!r} for the files of --output {prefix!r}")
    recorded = trace(
        arguments.target, machine=arguments.machine, workers=arguments.workers,
        fuse=arguments.fuse, runs=arguments.runs, backward=arguments.backward, cold=arguments.cold,
    )  # fmt: skip
    _show(recorded.summary())
    if (tip := hint(recorded)) is not None:
        print(f"\n{tip}")
    print(f"\nwrote {recorded.to_json(f'{prefix}.json')}, to be opened in https://ui.perfetto.dev")
    print(f"wrote {recorded.to_html(f'{prefix}.html', title=arguments.target)}")


def _experiment(arguments: argparse.Namespace) -> None:
    from actorgraph._target import outputs_and_feeds
    from actorgraph.trace.experiment import experiment

    outputs, feeds = outputs_and_feeds(arguments.target)
    table = experiment(
        outputs, feeds, lanes=arguments.lanes, devices=arguments.measure or arguments.gpus,
        backward=arguments.backward,
    )  # fmt: skip
    print(table)
    if arguments.output:
        print(f"\nwrote {table.to_html(arguments.output)}")


def _top(arguments: argparse.Namespace) -> None:
    from actorgraph.trace.serving import watch

    watch(arguments.socket, sys.stdout, every_s=arguments.every, once=arguments.once)


def _serve(arguments: argparse.Namespace) -> None:
    from actorgraph.serving.command import Endpoint, serve, server_of
    from actorgraph.serving.directory import Directory

    is_folder = os.path.isdir(arguments.target)
    delay_s = None if arguments.drain_delay is None else float(arguments.drain_delay)
    endpoint = Endpoint(
        arguments.host, arguments.port, arguments.grpc_port, arguments.metrics_port, delay_s,
        not arguments.no_access_log, arguments.supervised,
    )  # fmt: skip
    restarts = arguments.reload and not is_folder
    if arguments.workers > 1 or restarts:
        from actorgraph.serving.workers import supervise

        options = [arguments.target, "--host", endpoint.host]
        options += [] if delay_s is None else [f"--drain-delay={delay_s}"]
        options += ["--no-access-log"] * arguments.no_access_log
        options += ["--reload"] * (arguments.reload and is_folder)
        if arguments.config is not None:
            options += ["--config", arguments.config]
        folder = os.path.dirname(arguments.target.rpartition(":")[0]) or "."
        watched = folder if restarts else None
        code = supervise(options, endpoint, workers=arguments.workers, watched=watched)
        if code:
            raise SystemExit(code)
        return
    try:
        watching = {"reload_mode": "watch"} if arguments.reload else {}
        directory = Directory(arguments.target, arguments.config, **watching) if is_folder else None
        server = directory.server if directory else server_of(arguments.target, arguments.config)
    except GraphError as error:
        _failed(error)
        raise SystemExit(_BAD_USAGE) from None
    serve(server, endpoint, directory)


def _bench(arguments: argparse.Namespace) -> None:
    import anyio

    from actorgraph.serving.bench import bench

    measured = anyio.run(
        partial(
            bench, arguments.url, rate=arguments.rate, duration_s=arguments.seconds,
            rows=arguments.rows,
        )
    )  # fmt: skip
    print(json.dumps(measured.as_json()) if arguments.json else "\n".join(measured.lines()))


def _show(tables: object) -> None:
    """Print tables, drawn by rich if it is installed and stdout is a terminal, else as text."""
    screen = console(sys.stdout)
    if screen is None:
        print(tables)
    else:
        screen.print(tables)


def _pipeline(arguments: argparse.Namespace) -> None:
    from actorgraph.pipeline import load, recommend, simulate
    from actorgraph.pipeline.reporting import as_json, simulations

    costs, latency = arguments.costs or [1, 1, 1], arguments.latency or 0
    if arguments.load is not None:
        results = [simulate(load(arguments.load), costs=costs, latency=latency)]
    else:
        results = recommend(
            stages=arguments.stages or 4,
            microbatches=arguments.microbatches,
            costs=costs,
            latency=latency,
            memory=arguments.memory,
            schedules=arguments.schedule,
        )
    _show_schedules(arguments, results, [as_json(one) for one in results], simulations(results))


def _pipeline_run(arguments: argparse.Namespace) -> None:
    from actorgraph.pipeline import load
    from actorgraph.pipeline.command import run
    from actorgraph.pipeline.reporting import measured_as_json, measurements

    for name in ("costs", "latency", "memory"):
        if getattr(arguments, name) is not None:
            raise GraphError(f"--{name} is for simulations; `pipeline run` measures it")
    if arguments.load is None:
        schedules = arguments.schedule or ["1f1b"]
    else:
        schedules = [load(arguments.load), *(arguments.schedule or ())]
    results = run(
        arguments.target, schedules, stages=arguments.stages, microbatches=arguments.microbatches,
        split=arguments.split, reduce=arguments.reduce, workers=arguments.workers,
        runs=arguments.runs,
    )  # fmt: skip
    plain = [measured_as_json(one) for one in results]
    _show_schedules(arguments, results, plain, measurements(results))


def _show_schedules(
    arguments: argparse.Namespace, results: Sequence[Any], plain: Sequence[Any], table: Any
) -> None:
    from actorgraph.pipeline.reporting import show

    if arguments.save is not None:
        results[0].schedule.save(arguments.save)
    if arguments.json:
        print(json.dumps(plain))
    else:
        show(table, sys.stdout, width=shutil.get_terminal_size().columns)


def _calibrate(arguments: argparse.Namespace) -> None:
    from actorgraph._calibrate import calibrate

    outcome = calibrate(progress_for(sys.stdout, silent=arguments.json).say)
    if arguments.json:
        print(json.dumps(outcome))


def _failed(error: Exception) -> int:
    notes: list[str] = getattr(error, "__notes__", [])
    text = "\n".join([str(error) or type(error).__name__, *notes])
    lines = "\n".join(map(printable, text.split("\n")))
    print(f"actorgraph: error: {lines}", file=sys.stderr)
    return 1
