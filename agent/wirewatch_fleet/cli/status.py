"""`wirewatch fleet status`: every bad node once, worst first, as the dashboard Fleet shows them."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, ExistingFile
from wirewatch.cli.output import shown
from wirewatch.core.exits import Exit
from wirewatch.core.words import count, utc

if TYPE_CHECKING:
    from wirewatch_fleet.prometheus import Access
    from wirewatch_fleet.worst import BadNodeReport, FleetStatusDocument

LONGEST = 3600.0
"""Most seconds of a query."""
WIDTH = 110
HEADER = ("state", "cluster", "node", "reason", "where", "since", "last heard", "findings")
PLACES = ("rack", "leaf")
WORDS = {"failed": "FAILED", "unknown": "UNKNOWN", "silent": "silent", "degraded": "DEGRADED", "ok": "OK"}
_FILE = ExistingFile()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAccess:
    """Options for credentials and trust; field names are the names of the options."""

    token_file: Path | None
    user: str | None
    password_file: Path | None
    headers: tuple[str, ...]
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None

    def access(self, url: str, timeout: float) -> "Access":
        """Return the access to this Prometheus; raises UsageError, or AccessError for unusable parts."""
        from wirewatch_fleet.prometheus import Access, address, basic, bearer, secret, tls

        if ":" in (self.user or ""):
            raise click.UsageError(f"a name for HTTP basic authentication has no colon: {self.user!r}")
        if self.key_file is not None and self.cert_file is None:
            raise click.UsageError("--key-file needs --cert-file")
        given = dict(map(_header, self.headers))
        if self.user is not None and self.password_file is not None and self.token_file is None:
            given |= basic(self.user, secret(self.password_file))
        elif self.user is not None or self.password_file is not None:
            raise click.UsageError("give --token-file, or --user with --password-file")
        elif self.token_file is not None:
            given |= bearer(secret(self.token_file))
        return Access(address(url), given, tls(self.ca_file, self.cert_file, self.key_file), timeout)


def _header(given: str) -> tuple[str, str]:
    name, colon, value = given.partition(":")
    named = name.strip().replace("-", "").isalnum()
    if not (colon and named and given.isascii() and given.isprintable()):
        raise click.UsageError(f"--header must be NAME:VALUE, not {given!r}")
    return name.strip(), value.strip()


def credential_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of PrometheusAccess, each by its own name."""
    for option in (
        click.option("--key-file", type=_FILE, help="The key of --cert-file."),
        click.option("--cert-file", type=_FILE, help="Our own certificate, with its key or with --key-file."),
        click.option("--ca-file", type=_FILE, help="CA certificates to believe, instead of the system's."),
        click.option("--header", "headers", multiple=True, metavar="NAME:VALUE",
                     help="A header of each request, such as X-Scope-OrgID:gpu for Mimir; repeatable."),
        click.option("--password-file", type=_FILE, help="A file with the password of --user."),
        click.option("--user", help="Name for HTTP basic authentication, with --password-file."),
        click.option("--token-file", type=_FILE, help="A file with a bearer token."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(epilog=examples("wirewatch fleet status --prometheus http://prometheus:9090"))
@click.option(
    "--prometheus",
    "url",
    required=True,
    envvar="WIREWATCH_PROMETHEUS",
    show_envvar=True,
    help="Prometheus, Thanos or Mimir with the recording rules, such as http://prometheus:9090.",
)
@click.option("--cluster", "clusters", multiple=True, help="Only nodes of this cluster; repeatable.")
@credential_options
@click.option(
    "--timeout", type=Duration(), default="10s", show_default=True, help="For each of four queries."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def status(
    context: click.Context,
    /,
    *,
    url: str,
    clusters: tuple[str, ...],
    timeout: float,
    as_json: bool,
    **credentials: Any,
) -> None:
    """Show every bad node of a fleet once, worst first, with what to do.

    FAILED, then UNKNOWN with what cannot be read, then silent, then DEGRADED. It asks a Prometheus for the
    series of wirewatch-recording.yml, as the first table of the dashboard Fleet does. Nodes that died or were
    taken out of service discovery are there too.

    Exit code: the worst of all (0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN, which is also a silent node, no node
    at all, and an answer that is not whole); 69 no answer of Prometheus.
    """
    from wirewatch.cli.check.answer import HEALTHS
    from wirewatch.core.exits import exit_of
    from wirewatch_fleet.prometheus import NoPrometheus
    from wirewatch_fleet.worst import FLEET_STATUS

    if not 0 < timeout <= LONGEST:
        raise click.UsageError(f"--timeout must be above 0, and at most {LONGEST:g} s")
    access = PrometheusAccess(**credentials).access(url, timeout)
    try:
        made = _asked(access, clusters)
    except NoPrometheus as error:
        click.echo(f"wirewatch: {error}", err=True)
        context.exit(Exit.NO_ANSWER)
    click.echo(json.dumps(FLEET_STATUS.dump_python(made), indent=1) if as_json else shown(text_of(made)))
    context.exit(exit_of(HEALTHS[made.health]))


def _asked(access: "Access", clusters: Sequence[str]) -> "FleetStatusDocument":
    """Return the four answers of one moment as a document; raises NoPrometheus."""
    from wirewatch_fleet import worst
    from wirewatch_fleet.prometheus import instant
    from wirewatch_fleet.worst import document

    at, where = time.time(), worst.clusters(clusters)
    queries = (worst.state, worst.since, worst.findings, worst.heard)
    answers = [instant(access, query(where), at) for query in queries]
    warnings = dict.fromkeys(text for one in answers for text in one.warnings)
    table = worst.table(worst.Answers(*(one.points for one in answers)))
    return document(table, at, access.url, clusters, [*warnings])


def text_of(status: "FleetStatusDocument") -> Iterator[str]:
    """Yield the document for people: one line, the table, and actions for each reason in it."""
    from wirewatch.cli.tables import table

    bad = [f"{status.counts[name]} {word}" for name, word in WORDS.items() if status.counts.get(name)]
    every = f"{count(status.known, 'node')}{_of(status.clusters)}"
    yield (
        f"{status.health.upper()}: {every}: {', '.join(bad)}"
        if status.known
        else f"UNKNOWN: {_nobody(status)}"
    )
    yield from (f"  the answer is not whole: {one}" for one in status.warnings)
    if status.nodes:
        yield ""
        # Most fleets have neither label: no column for nothing.
        places = [name for name in PLACES if any(getattr(one, name) for one in status.nodes)]
        header = (*HEADER[:3], *places, *HEADER[3:])
        yield from table(header, [_row(one, status.at, places) for one in status.nodes])
    yield from _what_to_do(status)


def _of(clusters: Sequence[str]) -> str:
    return f" of {', '.join(clusters)}" if clusters else ""


def _nobody(status: "FleetStatusDocument") -> str:
    from wirewatch_fleet.worst import NO_RULES, OF_NODES

    if status.clusters:
        return f"no node is known{_of(status.clusters)}; is that the label `cluster` of its targets?"
    means, do = OF_NODES[NO_RULES]
    return f"{means}; {do}"


def _row(one: "BadNodeReport", at: float, places: Sequence[str]) -> tuple[str, ...]:
    where = " ".join(
        f"{'GPU' if name == 'gpu' else name} {text}" for name, text in one.subject.items() if name != "uuid"
    )
    return (
        WORDS[one.state], one.cluster or "-", one.node or "-",
        *(getattr(one, name) or "-" for name in places), one.rule, where or "-",
        "not known" if one.since is None else utc(one.since), _ago(one.heard, at),
        str(one.findings) if one.findings else "-",
    )  # fmt: skip


def _ago(heard: float | None, at: float) -> str:
    if heard is None:
        return "never"
    seconds = max(at - heard, 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _what_to_do(status: "FleetStatusDocument") -> Iterator[str]:
    """Yield each text once, with the reasons that share it, and the first sentence of their meaning."""
    import textwrap

    texts: dict[tuple[str, str], list[str]] = {}
    for rule, one in {one.rule: one for one in status.nodes}.items():
        texts.setdefault((one.means.partition(". ")[0], one.do), []).append(rule)
    for (means, do), rules in texts.items():
        yield ""
        yield from textwrap.wrap(f"{', '.join(rules)}: {means}", WIDTH, subsequent_indent="  ")
        yield from textwrap.wrap(do, WIDTH, initial_indent="  -> ", subsequent_indent="     ")
