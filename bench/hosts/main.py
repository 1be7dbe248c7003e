"""Runs the engines side by side: the same weights and token ids, repetitions in turns."""

import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "compare"))
import command  # noqa: E402
import table  # noqa: E402
from ways import WAYS, rates  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """An engine cannot do what was asked; the message is the reason."""


class Process:
    """An engine's program."""

    def __init__(self, way, dtype, options):
        host = options.engines / way.host
        # candle's program is not in Python, and vLLM has a Python of its own.
        names = (host / "requests", host / "vllm-python", host / "bin" / "python")
        program = next((name for name in names if name.exists()), None)
        if program is None:
            raise Failed("it is not installed")
        words = [program, *(["-B", HERE / way.program] if way.program else []), way.argument]
        words += ["--model", options.model, "--dtype", dtype, "--threads", str(options.threads)]
        self.log = (options.logs / f"{way.name}-{dtype}.log").open("w+")
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(words, text=True, env=environment(options), **how)
        self._answer()

    def __call__(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the process ended; _answer() reports it
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            lines = [text.strip() for text in self.log if text.strip()]
            raise Failed(lines[-1][:200] if lines else f"status {self.process.returncode}")
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def environment(options):
    """The environment of the hosts: the Python packages of the tree, and this library."""
    bindings = HERE.parents[1] / "bindings"
    packages = ("python", "engines/transformers", "engines/vllm")
    return os.environ | {
        "PAGEDKV_LIBRARY": str(options.library),
        "PYTHONPATH": os.pathsep.join(str(bindings / name) for name in packages),
        "LD_LIBRARY_PATH": str(options.library.parent),
    }


def turn(process, prompts, new):
    """The answers to one batch of prompts, and its times."""
    answer = process({"prompts": prompts, "new": new})
    start, times = answer["start"], answer["times"]
    first = max(t[0] for t in times)
    end = max(t[-1] for t in times)
    return answer["tokens"], {
        "prompt_tokens": sum(map(len, prompts)),
        "prompt_seconds": first - start,
        # Tokens before the first token of the last prompt do not count.
        "answer_tokens": sum(moment > first for t in times for moment in t),
        "answer_seconds": end - first,
        "first_token": sum(t[0] - start for t in times) / len(times),
        "seconds": end - start,
        "attention": answer["attention"],
        "mebibytes": answer["mebibytes"],
    }


def added(turns):
    """The sums over the turns of a conversation; the mean of the times to the first token."""
    result = dict(turns[0])
    for other in turns[1:]:
        for name, value in other.items():
            result[name] = None if value is None else result[name] + value
    result["first_token"] /= len(turns)
    result["mebibytes"] = turns[-1]["mebibytes"]
    return result


def play(process, workload):
    """The times of a whole workload, and the token ids of the first answers."""
    process({"reset": True})
    answers, first = turn(process, workload["prompts"], workload["new"])
    prompts, turns, begun = workload["prompts"], [first], answers
    for follow_up in workload.get("follow_ups", []):
        prompts = [p + a + follow_up for p, a in zip(prompts, answers)]
        answers, next_ = turn(process, prompts, workload["new"])
        turns.append(next_)
    return added(turns), begun


def start(dtype, options):
    """({name: process}, {name: the reason why it did not start})"""
    processes, reasons = {}, {}
    for way in WAYS:
        if not any(part in way.name for part in options.only):
            continue
        command.note(f"starting {way.name}, {dtype} ...")
        try:
            processes[way.name] = Process(way, dtype, options)
        except Failed as error:
            reasons[way.name] = str(error)
    return processes, reasons


def repeated(processes, reasons, workload, repeats):
    """{name: [runs]}: every engine in turn, then all of them again."""
    runs, answers = {}, {}
    for _ in range(repeats):
        for name, process in list(processes.items()):
            command.note(f"  {workload['name']}: {name}")
            try:
                result, answers[name] = play(process, workload)
                runs.setdefault(name, []).append(result)
            except Failed as error:
                reasons[name] = str(error)
                processes.pop(name).close()
            time.sleep(0.5)  # spinning threads go to sleep
    return runs, answers


def equal_answers(answers):
    """The number of answers of each engine that equal those of the first one, token by token."""
    expected = next(iter(answers.values()), [])
    return {name: sum(a == b for a, b in zip(given, expected)) for name, given in answers.items()}


def repeats_of(prompts):
    """Short runs are repeated, because other load can last as long as a short run."""
    if max(map(len, prompts)) > 500:
        return 1
    return 3 if len(prompts) > 1 else 10


def measure(options, workloads, save):
    """{dtype: {name: the reason why it did not run}}. Calls save(results so far) after each
    workload."""
    results, skipped = [], {}
    for dtype in options.dtypes:
        processes, reasons = start(dtype, options)
        for workload in workloads:
            repeats = 1 if options.quick else repeats_of(workload["prompts"])
            runs, answers = repeated(processes, reasons, workload, repeats)
            best = {name: min(r, key=lambda run: run["seconds"]) for name, r in runs.items()}
            result = {"workload": workload["name"], "dtype": dtype, "runs": best}
            result |= {"answers": len(workload["prompts"]), "equal": equal_answers(answers)}
            results.append(result)
            show(results[-1])
            save(results)
        for process in processes.values():
            process.close()
        skipped[dtype] = reasons
    return skipped


def show(result):
    print(f"\n{result['workload']}, {result['dtype']}")
    rows = []
    for way in WAYS:
        run = result["runs"].get(way.name)
        if run is None:
            continue
        own = result["runs"].get(way.own)
        prompt, answer = rates(run)
        share = run["attention"]
        rows.append(
            [
                way.name,
                f"{prompt:.0f}",
                f"{answer:.1f}",
                f"{run['first_token']:.2f}",
                f"{run['seconds']:.2f}",
                "-" if own is None else f"{own['seconds'] / run['seconds']:.2f}",
                "-" if share is None else f"{share / run['seconds']:.0%}",
                f"{run['mebibytes']:.0f}",
                f"{result['equal'].get(way.name, 0)} of {result['answers']}",
            ]
        )
    header = ["engine", "prompt tok/s", "answer tok/s", "first token s", "all s", "own / ours"]
    table.show_aligned([*header, "attention", "MiB", "equal answers"], rows)


def arguments():
    dtypes = ["f32", "bf16"]
    parser = command.parser("bench/engines", dtypes)
    parser.add_argument("--only", type=command.words, default=[""])
    parser.add_argument("--workloads", type=command.words, default=[""])
    parser.add_argument("--engines", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    options = command.parse(parser, dtypes)
    for part in options.only:
        if not any(part in way.name for way in WAYS):
            names = "; ".join(way.name for way in WAYS)
            parser.error(f"no engine has {part!r} in its name; there are: {names}")
    options.logs = options.engines / "logs"
    options.logs.mkdir(exist_ok=True)
    return options


def chosen(options):
    workloads = json.loads((options.model / "workloads.json").read_text())
    found = [w for w in workloads if any(part in w["name"] for part in options.workloads)]
    if not found:
        names = "; ".join(w["name"] for w in workloads)
        sys.exit(f"bench/engines: no workload of that name; there are: {names}")
    if options.quick:
        found = [w | {"new": 16} for w in found if max(map(len, w["prompts"])) < 500]
    return found


def main():
    options = arguments()
    report = command.report(options)

    def save(results):
        report["results"] = results
        command.save(report, options)

    skipped = measure(options, chosen(options), save)
    for dtype, reasons in skipped.items():
        for name, reason in reasons.items():
            print(f"Skipped {name}, {dtype}: {reason}")
    if options.out:
        import picture

        picture.draw(report, options.out)


main()
