"""A load or a verification as OpenLineage events: START, then COMPLETE, FAIL or ABORT.

Datasets are named as in https://openlineage.io/docs/spec/naming, which does not mention Redis. As
for other databases, the namespace is ``redis://host:port``, and the name is ``database.key``, where
the key is as in the template: ``0.user:{id}``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from ..encode.fields import Field, Items, Pairs
from ..encode.template import Command, Template
from ..outcome.messages import Hint, Message
from ..outcome.passwords import masked
from ..outcome.report import counted
from ..resp.commands import POSITIONS
from ..server.settings import Server
from ..server.threads import in_thread
from ..transports.driver import Blocking, Steps
from .stored_receipt import COMPLETE, counts_of, url_of

__all__ = ["Lineage", "VerificationLineage"]

# The variable that names the parent run.
PARENT = "OPENLINEAGE_PARENT_ID"
PACKAGE, EXTRA = "openlineage.client", "fastresp[lineage]"
# Maximum seconds that the end of a load waits until its events were sent.
SENT_S = 10.0
EVENT_TYPES = {COMPLETE: "COMPLETE", "interrupted": "ABORT"}
# The name of the assertion that a verification checks.
ASSERTION = "same_as_source"


class Lineage:
    """Sends the events of one load with an OpenLineageClient, which reads its own configuration.

    A failure does not stop the load: the logger ``fastresp`` logs a warning.

    Attributes:
        action: what the run does, for the name of the job.
        noun: the same, for a warning.

    Args:
        job: the name of the job; None to name it after the first dataset.

    Raises:
        ImportError: the package is not installed.
    """

    action = noun = "load"

    def __init__(self, job: str | None = None) -> None:
        try:
            self._package: Any = import_module(PACKAGE)
            self._events: Any = import_module(f"{PACKAGE}.event_v2")
            self._facets: Any = import_module(f"{PACKAGE}.facet_v2")
            self._run = str(import_module(f"{PACKAGE}.uuid").generate_new_uuid())
        except ImportError as error:
            text = f" needs openlineage-python, which is not installed: pip install '{EXTRA}'"
            raise ImportError(Message(Hint("lineage", True), text)) from error
        self._job = job
        self._parent = _parent_run()
        self._version = version("fastresp")
        self._producer = f"https://pypi.org/project/fastresp/{self._version}"
        self._client: Any = None
        self._sent: Future[None] | None = None

    def start(self, source: dict[str, Any], url: str | None, template: Template | None) -> None:
        """Send START in a thread, without waiting for it.

        Args:
            source: the field ``source`` of the receipt.
            url: the server's URL; None if it has no fixed address.
            template: the load's template; None for whole commands.
        """
        with self._warning():
            namespace, database = _namespace(url)
            self._outputs = [(namespace, f"{database}.{key}") for key in _keys(template)]
            self._inputs = [_dataset(each["path"]) for each in source["files"]]
            self._query = source["query"]
            self._job = self._job or f"{self.action} {self._outputs[0][1]}"
            self._sent = in_thread(partial(self._send, "START"))

    def end(self, receipt: dict[str, Any]) -> None:
        """Send the last event, and wait until both events were sent, for at most 10 s."""
        with self._warning():
            last = in_thread(partial(self._send_last, self._sent, receipt))
            if wait((last,), SENT_S).not_done:
                raise TimeoutError(f"not sent within {SENT_S:g} s")

    def _send_last(self, first: Future[None] | None, receipt: dict[str, Any]) -> None:
        if first is not None:
            wait((first,))
        self._send(EVENT_TYPES.get(receipt["state"], "FAIL"), receipt)
        if hasattr(self._client, "close"):
            with self._warning():
                self._client.close(SENT_S)

    def _send(self, kind: str, receipt: dict[str, Any] | None = None) -> None:
        with self._warning():
            if self._client is None:
                self._client = self._package.OpenLineageClient()
            self._client.emit(self._event(kind, receipt))

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Log an exception instead of raising it."""
        try:
            yield
        except Exception as error:
            text = "an OpenLineage event could not be sent, and the %s is not affected: %s: %s"
            words = self.noun, type(error).__name__, masked(str(error))
            logging.getLogger("fastresp").warning(text, *words)

    def _event(self, kind: str, receipt: dict[str, Any] | None = None) -> Any:
        """Return an event; the last event has the receipt."""
        events = self._events
        read, written = self._datasets(receipt)
        return events.RunEvent(
            eventType=getattr(events.RunState, kind),
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            run=events.Run(runId=self._run, facets=self._run_facets(receipt)),
            job=events.Job(
                namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or "default",
                name=self._job,
                facets=self._job_facets(),
            ),
            inputs=read,
            outputs=written,
            producer=self._producer,
        )

    def _datasets(self, receipt: dict[str, Any] | None) -> tuple[list[Any], list[Any]]:
        """Return the inputs and the outputs, with statistics if there is one."""
        facets, written = self._facets, {}
        if receipt is not None and len(self._outputs) == 1:
            made = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
            rows, size = receipt["counts"]["rows"], receipt["counts"]["bytes_sent"]
            written["outputStatistics"] = self._made(made, rowCount=rows, size=size)
        return self._sources(receipt and receipt["counts"]), [
            self._events.OutputDataset(namespace=namespace, name=name, outputFacets=written)
            for namespace, name in self._outputs
        ]

    def _sources(self, counts: dict[str, Any] | None) -> list[Any]:
        """Return the files of the source as inputs; a single file with its number of rows."""
        facets = {}
        if counts is not None and len(self._inputs) == 1:
            made = self._facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
            facets["inputStatistics"] = self._made(made, rowCount=counts["rows"])
        return [
            self._events.InputDataset(namespace=namespace, name=name, inputFacets=facets)
            for namespace, name in self._inputs
        ]

    def _made(self, kind: Any, **values: Any) -> Any:
        return kind(**values, producer=self._producer)

    def _job_facets(self) -> dict[str, Any]:
        job_type, sql = self._facets.job_type_job.JobTypeJobFacet, self._facets.sql_job.SQLJobFacet
        words = {"processingType": "BATCH", "integration": "FASTRESP"}
        found = {"jobType": self._made(job_type, **words, jobType=self.action.upper())}
        return found | ({"sql": self._made(sql, query=self._query)} if self._query else {})

    def _run_facets(self, receipt: dict[str, Any] | None) -> dict[str, Any]:
        """Return the result as a facet; without the text of the error, which may quote data."""
        facets = self._facets
        engine = facets.processing_engine_run.ProcessingEngineRunFacet
        found = {"processing_engine": self._made(engine, name="fastresp", version=self._version)}
        if self._parent is not None:
            namespace, name, run = self._parent
            of = facets.parent_run
            found["parent"] = self._made(
                of.ParentRunFacet, run=of.Run(runId=run), job=of.Job(namespace=namespace, name=name)
            )
        if receipt is None:
            return found
        error = receipt["error"] and receipt["error"]["type"]
        found |= self._result(receipt, error)
        if error or receipt["stopped"]:
            message = facets.error_message_run.ErrorMessageRunFacet
            words = {"message": error or receipt["stopped"], "programmingLanguage": "PYTHON"}
            found["errorMessage"] = self._made(message, **words)
        return found

    def _result(self, receipt: dict[str, Any], error: str | None) -> dict[str, Any]:
        return self._own_facet("receipt", receipt | {"error": error})

    def _own_facet(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """Return a facet of ours, which has one field, as a dict."""
        import attr  # installed with openlineage-python

        kind = f"{name.capitalize()}RunFacet"
        made = attr.make_class(kind, {name: attr.ib()}, (self._facets.RunFacet,))
        return {f"fastresp_{name}": self._made(made, **{name: value})}


class VerificationLineage(Lineage):
    """Sends the events of one verification: its inputs are the source and the server's keys.

    Args:
        source: the field ``source`` of a receipt, for the source of the verification.
        server: the server.
        template: the template of the source.
    """

    action, noun = "verify", "verification"

    def __init__(self, source: dict[str, Any], server: Server, template: Template | None) -> None:
        super().__init__()
        self.start(source, url_of(server), template)

    def ending(self, error: BaseException | None, report: Any) -> Steps[None]:
        """Send the last event: COMPLETE only if everything was compared, and is the same.

        Args:
            error: the exception that ended the verification, or None.
            report: the VerifyReport; None after an exception, which may have an incomplete one.
        """
        # Without an incomplete VerifyReport, the exception may have the report of the connection.
        found: dict[str, Any] = getattr(report or getattr(error, "report", None), "as_json", dict)()
        state, stopped = COMPLETE, ""
        if error is not None:
            state = "failed" if isinstance(error, Exception) else "interrupted"
        elif not found["same"]:
            state, stopped = "failed", str(found["stopped"]) or "no rows were compared"
            if found["differing"]:
                compared = counted(found["values"], "value")
                stopped = f"{counted(found['differing'], 'difference')} in {compared}"
        document = {
            "state": state,
            "error": error and {"type": type(error).__name__},
            "stopped": stopped,
            "verification": counts_of(found),
        }
        if isinstance(error, GeneratorExit):  # after it, nothing can be awaited
            self.end(document)
        else:
            yield Blocking(partial(self.end, document))

    def _datasets(self, receipt: dict[str, Any] | None) -> tuple[list[Any], list[Any]]:
        found, checked = None, {}
        if receipt is not None and receipt["error"] is None:
            found, of = receipt["verification"], self._facets.data_quality_assertions_dataset
            assertion = of.Assertion(assertion=ASSERTION, success=found["same"])
            facet = of.DataQualityAssertionsDatasetFacet
            checked["dataQualityAssertions"] = self._made(facet, assertions=[assertion])
        return [
            *self._sources(found),
            *(
                self._events.InputDataset(namespace=namespace, name=name, inputFacets=checked)
                for namespace, name in self._outputs
            ),
        ], []

    def _result(self, receipt: dict[str, Any], error: str | None) -> dict[str, Any]:
        return self._own_facet("verification", receipt["verification"])


def _parent_run() -> tuple[str, str, str] | None:
    """Return the namespace, job and run ID of the parent run; None without a valid one."""
    text = os.environ.get(PARENT)
    if not text:
        return None
    try:
        namespace, job, run = text.rsplit("/", 2)
        UUID(run)
    except ValueError:
        warning = "%s is ignored: it must be namespace/job/run ID, with a UUID as run ID, not %r"
        logging.getLogger("fastresp").warning(warning, PARENT, masked(text))
        return None
    return namespace, job, run


def _namespace(url: str | None) -> tuple[str, str]:
    """Return the namespace of a server's datasets, and the number of the database."""
    if url is None:
        return "redis://sentinel", "0"
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"redis+unix://{parts.path}", parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis://{parts.netloc}", parts.path.removeprefix("/") or "0"


def _dataset(path: str) -> tuple[str, str]:
    """Return the namespace and the name of a file."""
    if "://" not in path:
        return "file", path
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}", parts.path.removeprefix("/") or "/"


def _keys(template: Template | None) -> list[str]:
    """Return the keys that a template writes, with placeholders; ``*`` if they are unknown."""
    commands = () if template is None else template.commands
    return list(dict.fromkeys(map(_key, commands))) or ["*"]


def _key(command: Command) -> str:
    name = b"".join(part for part in command[0] if isinstance(part, bytes)).upper()
    known = POSITIONS.get(name)
    at = known.first if known is not None else int(b"." in name)
    before = [part for argument in command[1:at] for part in argument]
    if not 0 < at < len(command) or any(isinstance(part, Items | Pairs) for part in before):
        return "*"
    return "".join(
        part.decode(errors="backslashreplace") if isinstance(part, bytes) else _shown(part)
        for part in command[at]
    )


def _shown(part: object) -> str:
    return f"{{{part.key}}}" if isinstance(part, Field) else "*"
