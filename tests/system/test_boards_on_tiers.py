"""Every panel has data or its reason on both tiers, calm and in a storm, under Debian's Prometheus."""

from collections.abc import Iterator, Mapping
from itertools import product

import pytest

from dashboards import why
from dashboards.boards import BOARDS
from dashboards.parts import Blank, Stat
from tests.dashboards.panels import panels_of
from tests.dashboards.promserver import Prometheus
from tests.dashboards.tiers import MOODS, Shown, node_of, pages, scraped, shown
from wirewatch.core.types import Tier

pytestmark = pytest.mark.system

Found = Mapping[tuple[str, Tier], Mapping[tuple[str, str], Shown]]
NOT_CORE = "not exported at tier core"
OF_THE_PORT = {("wirewatch-agent", "Refused an hour")}
"""What a page that no daemon served has not."""
PANELS = {(board.uid, panel.title): panel for board in BOARDS for panel in panels_of(board)}
NODE, LINKS = "wirewatch-node", "wirewatch-links"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("tiers")
    with scraped(folder, pages(folder)) as made:
        yield made


@pytest.fixture(scope="module")
def found(prometheus: Prometheus) -> Found:
    return {
        (mood, tier): {
            (board.uid, title): one
            for board in BOARDS
            for title, one in shown(prometheus, board, mood, node_of(mood, tier)).items()
        }
        for mood, tier in product(MOODS, Tier)
    }


def test_no_panel_is_empty_without_a_reason(found: Found) -> None:
    silent = {
        (place, at)
        for place, panels in found.items()
        for at, one in panels.items()
        if one.silent and PANELS[at].blank is None
    }
    assert {at for _, at in silent} <= OF_THE_PORT


def test_no_number_stands_without_its_series(found: Found) -> None:
    """Each number has a value, or says in words why it has none."""
    for panels in found.values():
        for at, one in panels.items():
            if isinstance(PANELS[at], Stat):
                assert (one.value is None) == bool(one.why), at


def test_a_panel_says_that_it_is_not_of_core_where_it_is_not(found: Found) -> None:
    for (mood, tier), panels in found.items():
        told = {at for at, one in panels.items() if one.why == NOT_CORE}
        wanted = {at for at, panel in PANELS.items() if why.left_out(panel)} if tier is Tier.CORE else set()
        assert told == wanted, (mood, tier)
        assert all(not panels[at].rows for at in told), (mood, tier)


def test_what_core_has_says_the_same_on_both_tiers(found: Found) -> None:
    for mood in MOODS:
        core, full = found[mood, Tier.CORE], found[mood, Tier.FULL]
        same = [at for at, panel in PANELS.items() if not why.left_out(panel)]
        assert len(same) > 60
        assert {at: core[at].why for at in same} == {at: full[at].why for at in same}, mood
        assert {at for at in same if core[at].rows} == {at for at in same if full[at].rows}, mood


@pytest.mark.parametrize("tier", Tier)
def test_a_storm_shows_on_both_tiers(found: Found, tier: Tier) -> None:
    storm, calm = found["storm", tier], found["calm", tier]
    numbers = {
        (LINKS, "NVLinks missing"): 18, (LINKS, "PCIe lanes missing"): 1, (LINKS, "Ports not active"): 8,
        (LINKS, "Ports under their rate"): 8, (NODE, "Health"): 3, (NODE, "May a job start"): 0,
        ("wirewatch-fleet", "FAILED"): 1, ("wirewatch-fleet", "Under 70 %"): 1,
    }  # fmt: skip
    assert {at: storm[at].value for at in numbers} == numbers
    assert {at: calm[at].value for at in numbers} == {
        **dict.fromkeys(numbers, 0), (NODE, "May a job start"): 1
    }  # fmt: skip
    for at in (
        (NODE, "Findings and what to do"),
        (NODE, "XIDs"),
        (LINKS, "Checks that fail, or cannot be done"),
    ):
        assert storm[at].rows, at
        assert not calm[at].rows, at
        assert isinstance(PANELS[at].blank, Blank)


@pytest.mark.parametrize("tier", Tier)
def test_what_a_node_has_not_is_said(found: Found, tier: Tier) -> None:
    bare, busy = found["bare", tier], found["busy", tier]
    assert {bare[LINKS, title].why for title in ("Ports not active", "Ports under their rate")} == {
        "none here"
    }
    assert bare[LINKS, "RDMA ports, worst first"].why == "no RDMA port here"
    assert busy[NODE, "Lowest ratio"].why == "no probe"
    assert busy[NODE, "Last probe, by collective and size"].why == "no fresh probe: a busy node is not probed"
    assert busy[NODE, "Waited for"].why == "no job with the tap runs here"


@pytest.mark.parametrize("tier", Tier)
def test_a_port_that_cannot_be_read_is_not_active(found: Found, tier: Tier) -> None:
    blind = found["blind", tier]
    assert blind[LINKS, "Ports not active"].value == 1
    assert blind[LINKS, "Ports under their rate"].value == 0
    assert (blind[LINKS, "Findings"].value or 0) >= 1
    assert blind[NODE, "Health"].value == 2


def test_where_nobody_is_heard_no_number_stands(prometheus: Prometheus) -> None:
    for board in BOARDS:
        for title, one in shown(prometheus, board, "calm", "nobody").items():
            assert one.why or PANELS[board.uid, title].blank or not one.rows, title
            if isinstance(PANELS[board.uid, title], Stat):
                assert one.why in {"not heard", "no node"}, title


def test_nodes_of_both_tiers_show_data_and_that_some_is_missing(prometheus: Prometheus) -> None:
    (links,) = (board for board in BOARDS if board.uid == LINKS)
    both = shown(prometheus, links, "calm", *(node_of("calm", tier) for tier in Tier))
    path = both["Path from GPU to NIC"]
    assert (path.rows, path.why) == (80, NOT_CORE)
    assert not both["RDMA ports, worst first"].why


def test_the_mark_of_full_is_of_full_and_always_there(prometheus: Prometheus) -> None:
    name = why.MARK.partition("{")[0]
    assert len(prometheus.instant(f"{name}")) == len(MOODS)
