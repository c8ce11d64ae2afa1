"""Runs the benchmarks one after another: `make bench`, with ARGS="--data DIR" where recorded curves are needed."""

import argparse
import subprocess
import sys
from pathlib import Path

#: Each benchmark with whether it needs recorded curves.
BENCHMARKS = {
    "decision_speed": False,
    "local_engine": False,
    "nine_algorithms": False,
    "service_store": False,
    "service_age": False,
    "prospect_calibration": False,
    "simulated_quality": False,
    "crowds": False,
    "spark_engine": False,
    "elastic_speed": False,
    "forecast_accuracy": True,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--data", type=Path, help="recorded curves: index.csv.gz and <source>.npz")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(BENCHMARKS)}; all by default")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    failed = False
    for name in options.names or BENCHMARKS:
        takes_data = BENCHMARKS[name]
        print(f"== {name}", flush=True)
        if takes_data and options.data is None:
            print("skipped: it needs recorded curves; give --data DIR", flush=True)
            continue
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        if options.data is not None and name in (
            "prospect_calibration",
            "simulated_quality",
            "crowds",
            "forecast_accuracy",
        ):
            command += ["--data", str(options.data)]
        failed |= subprocess.run(command, check=False).returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
