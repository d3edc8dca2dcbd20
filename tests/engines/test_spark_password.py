"""Spark's pages do not show the password, if it is passed as the guide says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from needed import imported
from places import ROOT
from spark_sessions import settings

imported("pyspark")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

GUIDE = (ROOT / "docs/guides/spark.md").read_text()
# A separate process, since a session of tests has no pages.
PROGRAM = """
import json, sys, urllib.request
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.conf.set("spark.fastresp.password", "s3cret-set")
context = spark.sparkContext
page = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment"
print(urllib.request.urlopen(page).read().decode())
spark.stop()
"""


def test_environment(tmp_path: Path) -> None:
    [advised] = re.findall(r"`spark.redaction.regex` is `(.+?)`", GUIDE)
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.fastresp.password s3cret-file\n")
    command = f"--properties-file {properties} pyspark-shell"
    url = {"spark.executorEnv.REDIS_URL": "redis://:s3cret-url@localhost"}
    url |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    for regex in (None, advised):
        given = settings(tmp_path) | url | ({"spark.redaction.regex": regex} if regex else {})
        found = subprocess.run(
            ["env", f"PYSPARK_SUBMIT_ARGS={command}", sys.executable, "-c", PROGRAM,
             json.dumps(given)],
            capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr[-3000:]
        assert "spark.fastresp.password" in found.stdout
        shown = {*re.findall(r"s3cret-\w+", found.stdout)}
        assert shown == (set() if regex else {"s3cret-url"})
