"""Tests of other projects, with torch's loader and with Stoker's in its place.

    python -m tests.foreign FOLDER [WORD…]

FOLDER holds the projects' repositories, each under its name in `suites`; what they need must be installed in the
Python that runs this. Only suites whose name has one of the words are run. Each suite runs twice, in processes of its
own; printed are the counts side by side, and each test that passes with torch's loader and not with Stoker's. The exit
code is 1 if there is such a test that is not about something which Stoker refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from tests.foreign.suites import SUITES, Suite

HERE = Path(__file__).parent
SUITE_TIMEOUT_S = 1800
TEST_TIMEOUT_S = 120


def main(folder: Path, words: list[str]) -> int:
    """Run the suites; gives the exit code."""
    regressions = 0
    print("| tests | with torch's loader | with Stoker's |\n|---|---|---|", flush=True)
    notes: list[str] = []
    for suite in SUITES:
        if words and not any(word.lower() in suite.name.lower() for word in words):
            continue
        if not (folder / suite.folder).is_dir():
            print(f"| {suite.name} | no folder {suite.folder} | |", flush=True)
            continue
        theirs, ours = (run(folder / suite.folder, suite, swapped) for swapped in (False, True))
        print(f"| {suite.name} | {counted(theirs)} | {counted(ours)} |", flush=True)
        worse = [test for test, result in sorted(ours.items()) if result == "failed" and theirs.get(test) == "passed"]
        worse += [f"{test} (not run)" for test in sorted(theirs.keys() - ours.keys()) if theirs[test] == "passed"]
        for test in worse:
            is_refused = any(word in test for word in suite.refused)
            regressions += not is_refused
            notes.append(f"{suite.name}: {'refused' if is_refused else 'WORSE'}: {test}")
        skipped = [test for test, result in sorted(ours.items()) if (theirs.get(test), result) == ("passed", "skipped")]
        notes += [f"{suite.name}: passed with torch's, skipped or xfailed with Stoker's: {test}" for test in skipped]
    print("\n" + "\n".join(notes or ["Nothing that passes with torch's loader fails with Stoker's."]))
    return 1 if regressions else 0


def run(folder: Path, suite: Suite, swapped: bool) -> dict[str, str]:
    """Each test, and whether it passed, failed or was skipped."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["--continue-on-collection-errors", f"--timeout={TEST_TIMEOUT_S}", "-W", "default"]
        command += ["-p", "stoker_in_torchs_place"] if swapped else []
        command += ["-k", suite.keep] if suite.keep else []
        command += [path for path in suite.paths if (folder / path).exists()]
        log = Path(os.environ.get("FOREIGN_LOGS", place)) / f"{suite.name}, {'stoker' if swapped else 'torch'}.log"
        with log.open("w") as output:
            try:
                subprocess.run(
                    command,
                    cwd=folder,
                    env=environment(folder),
                    stdout=output,
                    stderr=output,
                    check=False,
                    timeout=SUITE_TIMEOUT_S,
                )
            except subprocess.TimeoutExpired:
                return {}
        return read(report) if report.exists() else {}


def environment(folder: Path) -> dict[str, str]:
    """Where the tests find Stoker, the plugin, and their own packages."""
    import stoker

    paths = [str(folder), str(HERE), str(Path(stoker.__file__).parents[1])]
    quiet = {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true", "CUDA_VISIBLE_DEVICES": "", "STOKER_TOP": "0"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(paths)}


def read(report: Path) -> dict[str, str]:
    """The outcomes in a report of pytest's."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        found[name] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return found


def counted(results: dict[str, str]) -> str:
    """For people."""
    counts = Counter(results.values())
    words = [f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped") if counts[kind]]
    return ", ".join(words) or "did not run"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
