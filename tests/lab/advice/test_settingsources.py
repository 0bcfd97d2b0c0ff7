"""Settings as they stand in an environ, an nccl.conf, or a file that a shell reads."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.core.types import Absent
from wirewatch_lab.advice.settings.sources import (
    SettingsSource,
    effective,
    of_conf,
    of_environ,
    of_file,
    of_shell,
    of_yaml,
)


def pairs(source: SettingsSource | Absent) -> dict[str, str]:
    assert not isinstance(source, Absent)
    return {one.name: one.value for one in source.settings}


def test_an_environ_is_its_entries_and_the_first_of_a_name() -> None:
    data = b"NCCL_ALGO=Ring\0PATH=/bin\0NCCL_ALGO=Tree\0=x\0y\0NCCL_DEBUG=\0"
    found = of_environ(data, "environ")
    assert pairs(found) == {"NCCL_ALGO": "Ring", "PATH": "/bin", "NCCL_DEBUG": "", "": "x"}
    assert found.repeated == ("NCCL_ALGO",)


def test_an_nccl_conf_takes_spaces_and_quotes_as_they_stand() -> None:
    text = '# a\r\nNCCL_A=1\r\nNCCL_B = 2\nNCCL_C="3"\n\nNCCL_D 4\nNCCL_IFNAME==eth0'
    found = of_conf(text, "nccl.conf")
    assert pairs(found) == {"NCCL_A": "1", "NCCL_B ": " 2", "NCCL_C": '"3"', "NCCL_IFNAME": "=eth0"}
    assert found.not_understood == ("NCCL_D 4",)
    assert found.literal


def test_a_shell_takes_them_off_and_the_last_of_a_name_counts() -> None:
    text = (
        "#!/bin/bash\n# export NCCL_A=0\nexport NCCL_A='1' NCCL_B=2 # why\nNCCL_C=\"a b\" python x.py\n"
        "mpirun -x NCCL_D=4 -x NCCL_E ./x\nNCCL_A=5\nunset NCCL_B\nexport NCCL_F=$HCA NCCL_G=`hostname`\n"
        "export PATH=/bin\nexport NCCL_H = 1\nif [ x ]; then echo 'open\n export NCCL_I='open\n"
    )
    found = of_shell(text, "x.sh")
    assert pairs(found) == {"NCCL_A": "5", "NCCL_C": "a b", "NCCL_D": "4"}
    assert found.filled == ("NCCL_F", "NCCL_G")
    assert found.not_understood == ("export NCCL_H = 1", " export NCCL_I='open")


@each(
    ("data", "name", "found"),
    [
        (b"NCCL_A=1\0B=2\0", "copy", {"NCCL_A": "1", "B": "2"}),
        (b"export NCCL_A='1'\n", "x", {"NCCL_A": "1"}),
        (b"export NCCL_A='1'\n", "nccl.conf", {"export NCCL_A": "'1'"}),
        (b"NCCL_A='1'\n", "x", {"NCCL_A": "'1'"}),
        (b"", "x", {}), (b"# nothing\n", "x", {}), (b"NCCL_A\n", "x", {}),
        (b"#!/bin/sh\nNCCL_A='1'\n", "x", {"NCCL_A": "1"}),
    ],
)  # fmt: skip
def test_a_file_is_read_by_its_form(data: bytes, name: str, found: dict[str, str]) -> None:
    assert pairs(of_file(data, name)) == found


def test_a_script_has_commands_continued_lines_and_what_slurm_passes_on() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --export=ALL,NCCL_A=0\nexport NCCL_B=mlx5_0,mlx5_1 \\\n  NCCL_C=2\n"
        'NCCL_D="3"; python x.py\nsrun --export=ALL,NCCL_E=4 env NCCL_F=5 ./x && NCCL_G=6 ./y|cat\n'
        "setenv NCCL_H 7\n"
    )
    assert pairs(of_shell(text, "x.sh")) == {
        "NCCL_A": "0", "NCCL_B": "mlx5_0,mlx5_1", "NCCL_C": "2", "NCCL_D": "3", "NCCL_E": "4",
        "NCCL_F": "5", "NCCL_G": "6", "NCCL_H": "7",
    }  # fmt: skip
    assert pairs(of_file(b"FROM x\nENV NCCL_A=1 NCCL_B=2\nENV NCCL_C 3\n", "Dockerfile")) == {
        "NCCL_A": "1", "NCCL_B": "2", "NCCL_C": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("env:\n- name: NCCL_A\n  value: Ring\n- name: PATH\n  value: /bin\n", {"NCCL_A": "Ring"}),
        ('a: &x [{name: "NCCL_A", value: "1"}]\nb: *x\n---\nNCCL_B: 2\n', {"NCCL_A": "1", "NCCL_B": "2"}),
        ('{"environment": ["NCCL_A=1"], "data": {"NCCL_B": "2"}}', {"NCCL_A": "1", "NCCL_B": "2"}),
        ("- &a [*a]\n", {}),
    ],
)
def test_yaml_has_the_env_of_containers(text: str, found: dict[str, str]) -> None:
    assert pairs(of_file(text.encode(), "job.yaml")) == found


def test_a_value_that_kubernetes_fills_in_is_not_known() -> None:
    source = of_file(b"env:\n- name: NCCL_A\n  valueFrom: {fieldRef: {fieldPath: x}}\n", "x")
    assert isinstance(source, SettingsSource)
    assert (source.settings, source.filled) == ((), ("NCCL_A",))
    assert isinstance(of_file(b"a: [", "x.yaml"), Absent)


@each("data", [b"\x7fELF\0\1\0", b"\0", b"a\0b\0", b"root:x:0:0:/bin/bash\n", b"\x01=2\n", b"a=1\0\x02"])
def test_what_has_no_settings_is_no_such_file(data: bytes) -> None:
    assert isinstance(of_file(data, "x"), Absent)


def test_the_first_place_counts_and_the_others_are_hidden() -> None:
    first, second = of_conf("A=1\nB=1", "first"), of_conf("B=2\nC=3\nA=1", "second")
    counts, hidden = effective((first, second))
    assert {one.name: (one.value, one.origin) for one in counts} == {
        "A": ("1", "first"), "B": ("1", "first"), "C": ("3", "second"),
    }  # fmt: skip
    assert [(one.name, one.value) for one in hidden] == [("B", "2")]


@given(
    st.dictionaries(
        st.from_regex(r"NCCL_[A-Z]{1,8}", fullmatch=True),
        st.text(
            st.characters(
                exclude_characters="$`\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029",
                exclude_categories=["Cs", "Cc"],
            )
        ),
    )
)
def test_what_a_shell_quotes_it_reads_as_it_was(settings: dict[str, str]) -> None:
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    assert pairs(of_shell(text, "x")) == settings


@given(st.binary())
def test_any_bytes_are_settings_or_none(data: bytes) -> None:
    found = of_file(data, "x")
    assert isinstance(found, Absent | SettingsSource)


@each(
    ("line", "found"),
    [
        ("setenv NCCL_A 1", {"NCCL_A": "1"}),
        ("ENV NCCL_A 1", {"NCCL_A": "1"}),
        ("ENV NCCL_A=1", {"NCCL_A": "1"}),
        ("setenv NCCL_A", {}),
        ("setenv OTHER NCCL_B", {}),
        ("setenv A=NCCL_A 1", {}),
        ("ENV OTHER=1 NCCL_A=2", {"NCCL_A": "2"}),
        ("echo NCCL_A 1", {}),
        ("srun --export=ALL,NCCL_A=1,B=2 x", {"NCCL_A": "1"}),
        ("docker run --env=NCCL_A=1 x", {"NCCL_A": "1"}),
        ("x --other=NCCL_A=1", {}),
        ("export nccl_a=1", {"nccl_a": "1"}),
        ("export NCCL_A=1; unset NCCL_A", {"NCCL_A": "1"}),
        ("unset OTHER", {}),
        ("export A=$NCCL", {}),
    ],
)
def test_a_line_of_a_shell_sets_what_is_nccls(line: str, found: dict[str, str]) -> None:
    assert pairs(of_shell(line, "x")) == found


def test_what_a_shell_fills_in_and_then_sets_is_known() -> None:
    found = of_shell("export NCCL_A=$X NCCL_B=$X\nexport NCCL_A=1\nunset NCCL_B NCCL_C\n", "x")
    assert (pairs(found), found.filled) == ({"NCCL_A": "1"}, ())
    found = of_shell("export NCCL_A=1\nexport NCCL_A=`x`\n", "x")
    assert (pairs(found), found.filled) == ({}, ("NCCL_A",))


@each(
    ("line", "unknown"),
    [
        ("NCCL_A = 1", True),
        ("A = 1", False),
        ("export NCCL_A='1", True),
        ("export A='1", False),
        ("NCCL_A 1", False),
    ],
)
def test_a_line_that_sets_nothing_of_nccl_is_named_where_it_seems_to(line: str, unknown: bool) -> None:  # noqa: FBT001
    assert of_shell(line, "x").not_understood == ((line,) if unknown else ())


@each(
    ("text", "found", "filled"),
    [
        ("env: [{name: NCCL_A, value: 1}]", {"NCCL_A": "1"}, ()),
        ("env: [{name: A, value: 1}]", {}, ()),
        ("env: [{name: NCCL_A}]", {}, ("NCCL_A",)),
        ("NCCL_A: 1", {"NCCL_A": "1"}, ()),
        ("NCCL_A:", {"NCCL_A": ""}, ()),
        ("NCCL_A: [1]", {}, ()),
        ("NCCL_A: {b: 1}", {}, ()),
        ("A: 1", {}, ()),
        ("[NCCL_A=1, A=2, NCCL_B]", {"NCCL_A": "1"}, ()),
        ("a: &x {NCCL_A: 1}\nb: *x", {"NCCL_A": "1"}, ()),
        ("a: &x [*x]", {}, ()),
    ],
)
def test_yaml_sets_what_is_nccls(text: str, found: dict[str, str], filled: tuple[str, ...]) -> None:
    source = of_yaml(text, "x")
    assert pairs(source) == found
    assert isinstance(source, SettingsSource)
    assert source.filled == filled


def test_a_value_of_a_conf_has_as_many_characters_as_nccl_takes() -> None:
    found = of_conf(f"NCCL_A={'x' * 1023}\nNCCL_B={'x' * 1024}", "x")
    assert {name: len(value) for name, value in pairs(found).items()} == {"NCCL_A": 1023, "NCCL_B": 1023}


@each(
    ("data", "name", "what"),
    [
        (b"\0", "x", None),
        (b"A=1\0\0B=2", "x", {"A": "1", "B": "2"}),
        (b"A=1\0B", "x", None),
        (b"A=1\0=2", "x", None),
        (b"\x01NCCL_A=1", "x", None),
        (b"hello", "x", None),
        (b"hello\nnccl is here", "x", {}),
        (b"- name: NCCL_A\n  value: 1", "x", {"NCCL_A": "1"}),
        (b"NCCL_A: 1", "x.json", {"NCCL_A": "1"}),
        (b"NCCL_A: 1", "x", {}),
        (b"{", "x.yml", None),
        (b'  export NCCL_A="1"', "x", {"NCCL_A": "1"}),
        (b'exports NCCL_A="1"', "x", {"exports NCCL_A": '"1"'}),
        (b"#!/bin/sh\nNCCL_A='1'", "x.conf", {"NCCL_A": "'1'"}),
    ],
)
def test_a_file_is_of_one_form_or_of_none(data: bytes, name: str, what: dict[str, str] | None) -> None:
    source = of_file(data, name)
    assert (None if isinstance(source, Absent) else pairs(source)) == what


@pytest.mark.parametrize(
    ("one", "other", "hidden"),
    [("A=1", "A=2", 1), ("A=1", "A=1", 0), ("A=1", "B=2", 0), ("A=1\nA=2", "", 0)],
)
def test_only_another_value_of_another_place_is_hidden(one: str, other: str, hidden: int) -> None:
    counts, hides = effective((of_conf(one, "first"), of_conf(other, "second")))
    assert len(hides) == hidden
    assert counts[0].value == "1"
    same = effective((of_conf("A=1", "here"), of_conf("A=2", "here")))
    assert same[1] == ()
