#!/bin/sh
# May a job start on this node? Answers from the file that the daemon keeps, as `wirewatch check --cached` does from
# the daemon itself, but in a few milliseconds and without Python. Any POSIX shell; no process is started but for one
# `stat` where the file is another user's, and `tr` for names of GPUs in capitals. docs/verdict-file.md has the format.
#
#   gate.sh [--file F] [--fail-on failed[,unknown,degraded]] [--gpus LIST [--of COUNT] | --without-gpus]
#           [--defer [--max-age AGE]] [--recording]
#
# Prints one line. Exit status: 0, a job may start; 1 DEGRADED, 2 FAILED, 3 UNKNOWN, none may; 64 wrong usage;
# 70 this script's own error. A file that is not there, torn, old, of another boot or of a recording is UNKNOWN.
# --defer: 75 instead, where `wirewatch check` may know more: there is no verdict in the file, or the last probe is
# older than AGE (such as 2h). --recording: believe a recording, for tests and demonstrations. --gpus: the GPUs that the
# job holds, by whose findings it starts, of as many as the scheduler counts; --without-gpus: by those of no GPU. A list
# that cannot be read means the whole node. Its rules are those of agent/wirewatch/cli/check/gpus.py.
set -euf

PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
IFS=' 	
'
# What runs a job must not be told by a status that the shell itself gave.
status=70
trap 'exit "$status"' EXIT

file=/run/wirewatch/verdict fail_on='' defer='' max_age='' recording='' of='' listed='' counted=''
value='' size=0 age=0 written='' note='' rows='' parts=0

# leave STATUS LINE: the end.
leave() {
    status=$1
    [ -z "$2" ] || printf '%s\n' "$2"
    exit "$status"
}

usage() {
    printf 'gate: %s\n' "$1" >&2
    leave 64 ''
}

# conclude HEALTH LINE: by the healths of `fail_on`.
conclude() {
    set -- "$1" "$2$note"
    case ,$fail_on, in
        *",$1,"*) ;;
        *) leave 0 "$2" ;;
    esac
    case $1 in
        degraded) leave 1 "$2" ;;
        failed) leave 2 "$2" ;;
        *) leave 3 "$2" ;;
    esac
}

# unknown WHY: the file holds no verdict.
unknown() {
    [ -z "$defer" ] || leave 75 "UNKNOWN; $file: $1"
    fail_on=${fail_on:-failed,unknown}
    conclude unknown "UNKNOWN; $file: $1"
}

torn() {
    unknown "not a whole verdict ($1)"
}

# healths LIST: whether these are healths with which a job may be kept from starting.
healths() {
    case ,$1, in
        *[!a-z,]* | ,, | *,,*) return 1 ;;
    esac
    rest=$1,
    while [ -n "$rest" ]; do
        case ${rest%%,*} in
            failed | unknown | degraded) rest=${rest#*,} ;;
            *) return 1 ;;
        esac
    done
}

# whole TEXT: whether it is a number that every shell reads alike.
whole() {
    case $1 in
        0) ;;
        '' | 0* | *[!0-9]* | ???????????*) return 1 ;;
    esac
}

# seconds AGE: sets `max_age`.
seconds() {
    case $1 in
        *d) unit=86400 ;;
        *h) unit=3600 ;;
        *m) unit=60 ;;
        *) unit=1 ;;
    esac
    max_age=${1%[smhd]}
    whole "$max_age" || usage "not a whole number of s, m, h or d: '$1'"
    max_age=$((max_age * unit))
}

options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --defer) defer=yes ;;
            --recording) recording=yes ;;
            --without-gpus)
                [ "$of" != job ] || usage "--gpus and --without-gpus exclude each other"
                of=none
                ;;
            --file | --fail-on | --max-age | --gpus | --of)
                [ $# -gt 1 ] || usage "$1 takes a value"
                case $1 in
                    --file) file=$2 ;;
                    --fail-on)
                        healths "$2" || usage "not a list of healths: '$2'"
                        fail_on=failed,$2
                        ;;
                    --max-age) seconds "$2" ;;
                    --of)
                        case $2 in
                            ?????*) usage "not a number of GPUs: '$2'" ;;
                        esac
                        whole "$2" || usage "not a number of GPUs: '$2'"
                        counted=$2
                        ;;
                    --gpus)
                        [ "$of" != none ] || usage "--gpus and --without-gpus exclude each other"
                        of=job listed=$2
                        ;;
                esac
                shift
                ;;
            *) usage "no such option: '$1'" ;;
        esac
        shift
    done
    case $file in
        */ | */../* | */./* | *//*) usage "not the path of a file: '$file'" ;;
        /?*) ;;
        *) usage "not an absolute path: '$file'" ;;
    esac
    [ -z "$max_age" ] || [ -n "$defer" ] || usage "--max-age goes with --defer"
    [ -z "$counted" ] || [ "$of" = job ] || usage "--of goes with --gpus"
}

# owned: whether nobody but root, this user and the agent can have placed the file that is open as 0.
#
# As the daemon's socket is believed: another user's file counts where not every user may write in the folders above
# it. In a sticky one, such as /tmp, nobody replaces what is root's.
owned() {
    [ ! -O /proc/self/fd/0 ] || return 0
    [ "$PWD" = "${file%/*}" ] || return 1 # by way of a link, which might be anybody's
    folder=$PWD
    set -- /proc/self/fd/0
    while [ -n "$folder" ]; do
        set -- "$@" "$folder"
        folder=${folder%/*}
    done
    found=$(stat -L -c '%u %a' -- "$@" / 2>/dev/null) || return 1
    # shellcheck disable=SC2086  # two words for each
    set -- $found
    [ "$1" != 0 ] || return 0
    owner=$1
    shift 2
    while [ $# -gt 1 ]; do
        case $2 in
            [1357]??[2367]) [ "$owner" = 0 ] || return 1 ;;
            *[2367]) return 1 ;;
        esac
        owner=$1
        shift 2
    done
}

# field NAME: sets `value` from the next line, which must be this field's.
field() {
    IFS= read -r text || torn "it ends before '$1'"
    case $text in
        "$1 "?*) value=${text#"$1 "} ;;
        *) torn "no '$1'" ;;
    esac
    case $value in
        *[!\ -~]*) torn "'$1' is not plain text" ;;
    esac
    [ "$1" = end ] || size=$((size + ${#text} + 1))
}

# one_of NAME WORD...: the same, and it must be one of these.
one_of() {
    field "$1"
    key=$1
    shift
    for word in "$@"; do
        [ "$value" != "$word" ] || return 0
    done
    torn "'$key' is '$value'"
}

# aged: sets `age`, seconds by a clock that nobody sets; a file that is too old holds no verdict.
aged() {
    uptime=''
    { read -r uptime text </proc/uptime; } 2>/dev/null || unknown "this machine's uptime cannot be read"
    now=${uptime%%.*}
    whole "$now" || unknown "this machine's uptime cannot be read"
    field written
    written=$value
    whole "${written%.*}" || torn "'written' is '$written'"
    age=$((now - ${written%.*}))
    [ "$age" -ge 0 ] || unknown "it is of the future"
    field valid
    whole "$value" || torn "'valid' is '$value'"
    [ "$age" -le "$value" ] || unknown "$age s old, which is too old: the daemon does not write it any more"
}

# verdict: reads the file that is open as 0, and answers.
verdict() {
    owned || unknown "it is another user's, in a place where anybody can put one: not believed"
    field "$kind"
    [ "$value" = 1 ] || unknown "of a format that this gate does not know: '$value'"
    field boot
    boot=''
    { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null || :
    [ -n "$boot" ] || unknown "this machine's boot cannot be read"
    [ "$value" = "$boot" ] || unknown "it is of another boot"
    aged
    one_of source live replay synthetic
    source=$value
    one_of health ok degraded unknown failed
    health=$value
    one_of job_ready yes no
    ready=$value
    field fail_on
    healths "$value" || torn "'fail_on' is '$value'"
    own=$value
    field always
    healths "$value" || torn "'always' is '$value'"
    always=$value
    field probe
    probe=$value
    one_of released yes no
    released=$value
    field line
    reason=$value
    [ "$kind" = wirewatch-verdict ] || parts
    bytes=$size
    field end
    [ "$value" = "$written $bytes" ] || torn "its end is of another"
    if IFS= read -r text || [ -n "$text" ]; then
        torn "something follows its end"
    fi
    agrees
    [ "$source" = live ] || [ -n "$recording" ] || unknown "a recording, not this node"
    [ -z "$max_age" ] || probed
    fail_on=${fail_on:-$own},$always
    [ -z "$of" ] || by_parts
    conclude "$health" "$reason"
}

# alike HEALTH LINE: the line must begin with the health.
alike() {
    case $1:$2 in
        ok:OK | degraded:DEGRADED | unknown:UNKNOWN | failed:FAILED) ;;
        ok:OK[\ \;]* | degraded:DEGRADED[\ \;]* | unknown:UNKNOWN[\ \;]* | failed:FAILED[\ \;]*) ;;
        *) torn "its line is not that of '$1'" ;;
    esac
}

# agrees: what the file says twice it must say alike.
agrees() {
    alike "$health" "$reason"
    case ,$own,:$ready in
        *",$health,"*:no) ;;
        *",$health,"*:yes | *:no) torn "'job_ready' does not follow from 'health'" ;;
    esac
}

# rank: reads `value`, a health and a line; sets `rank`, higher for a worse health.
rank() {
    alike "${value%%\ *}" "${value#*\ }"
    case $value in
        ok*) rank=0 ;;
        degraded*) rank=1 ;;
        unknown*) rank=2 ;;
        *) rank=3 ;;
    esac
}

# parts: reads the node without its GPUs, which is the first, and each GPU. Sets `parts`, how many there are, `rank_N` and
# `said_N` of each, health and line, and `rows`, a word of names for each GPU.
parts() {
    worst=0
    field parts
    whole "$value" || torn "'parts' is '$value'"
    count=$value
    while [ "$parts" -lt "$count" ]; do
        field part
        case $parts:$value in
            0:*) ;;
            *:*/*/*/*/*/\ *) rows="$rows $parts:/${value%%\ *}" value=${value#*/\ } ;;
            *) torn "'part' is '$value'" ;;
        esac
        rank
        [ "$rank" -le "$worst" ] || worst=$rank
        eval "rank_$parts=$rank said_$parts=\$value"
        parts=$((parts + 1))
    done
    value="$health $reason"
    rank
    [ "$parts" = 0 ] || [ "$rank" = "$worst" ] || torn "its parts are not those of '$health'"
}

# by_parts: sets `health`, `reason` and `note` by the GPUs of the job; where these are not known, by the whole node.
by_parts() {
    held=' ' why="its GPUs are not known"
    if [ "$parts" = 0 ] || { [ "$of" = job ] && ! listed; }; then
        note="; the whole node counts: $why"
        return
    fi
    # shellcheck disable=SC2154  # set by `parts`
    chosen=0 counts=$rank_0 most=0 more=-1
    for row in $rows; do
        at=${row%%:*}
        eval "rank=\$rank_$at"
        case $held in
            *" $at "*) [ "$rank" -le "$counts" ] || counts=$rank chosen=$at ;;
            *)
                [ "$rank" = 0 ] || more=$((more + 1))
                [ "$rank" -le "$most" ] || most=$rank sick=${row#*:/}
                ;;
        esac
    done
    eval "health=\${said_$chosen%%\\ *} reason=\${said_$chosen#*\\ }"
    case $most in
        0) return ;;
        1) note="; GPU ${sick%%/*} is DEGRADED and" ;;
        2) note="; GPU ${sick%%/*} is UNKNOWN and" ;;
        *) note="; GPU ${sick%%/*} is FAILED and" ;;
    esac
    [ "$of" = job ] && note="$note not of this job" || note="$note left aside"
    [ "$more" = 0 ] || note="$note, and $more more"
}

# listed: sets `held`, the numbers of the parts that the list names; false, and `why`, where it cannot be read.
listed() {
    if [ -n "$counted" ] && [ "$counted" -ne $((parts - 1)) ]; then
        why="the scheduler counts $counted GPUs, the agent $((parts - 1))"
        return 1
    fi
    case $listed in
        *[!\ \	]*) ;;
        *)
            why="the list of GPUs is empty"
            return 1
            ;;
    esac
    seen=,
    # With a comma at the end no name is lost that is empty.
    listed=$listed,
    IFS=,
    # shellcheck disable=SC2086  # a word for each name
    set -- $listed
    IFS=' 	
'
    for name in "$@"; do
        name=${name#"${name%%[! 	]*}"}
        name=${name%"${name##*[! 	]}"}
        case $seen in
            *",$name,"*) continue ;;
        esac
        seen="$seen$name,"
        named || return
    done
}

# refuse WHY: the list cannot be read, since its `name` is not one of a GPU.
refuse() {
    case $name in
        '' | *[!A-Za-z0-9:/._-]*) why="a name in the list $1" ;;
        *) [ ${#name} -gt 60 ] && why="a name in the list $1" || why="'$name' $1" ;;
    esac
    return 1
}

# named: the same as `listed` for `name` alone.
named() {
    low=$name
    case $name in
        *[!A-Za-z0-9:/._-]*) ;;
        *[A-Z]*) low=$(printf %s "$name" | tr '[:upper:]' '[:lower:]') ;;
    esac
    case $low in
        '' | *[!a-z0-9:/.-]*) take ;;
        mig-gpu-*) instance "${low#mig-}" ;;
        # Whose it is, is not known: it is of a GPU that is split.
        mig-[0-9a-f]*) hexadecimal "${low#mig-}" && take '*/split/' '*/unknown/' ;;
        gpu-?*)
            hexadecimal "${low#gpu-}" && take "*/$low*" || return
            [ "$found" = 1 ] || refuse "is the beginning of several GPUs"
            ;;
        *:*.*) address ;;
        *:*) short "${low#*:}" && short "${low%%:*}" && take "*:/${low%%:*}/*" "*:/*/${low%%:*}/*/*/*/" ;;
        *-*) range "${low%%-*}" "${low#*-}" ;;
        *) number "$low" ;;
    esac
}

# take PATTERN...: adds the GPUs whose names match to `held`; sets `found`, how many. There must be one.
take() {
    found=0
    for row in $rows; do
        for pattern in "$@"; do
            # shellcheck disable=SC2254  # it is a pattern
            case $row in
                $pattern)
                    found=$((found + 1)) held="$held${row%%:*} "
                    break
                    ;;
            esac
        done
    done
    [ "$found" != 0 ] || refuse "is no GPU of this node"
}

# short NUMBER: it is one that a GPU may have.
short() {
    case $1 in
        ?????*) take ;;
        *) whole "$1" || take ;;
    esac
}

# hexadecimal TEXT: it is of such digits and dashes.
hexadecimal() {
    case $1 in
        *[!0-9a-f-]*) take ;;
    esac
}

# number NUMBER: takes the GPUs of a number that may be NVML's or the device file's: both. Where a GPU is in MIG mode,
# schedulers number MIG devices, so that it says nothing sure.
number() {
    short "$1" || return
    case "$rows " in
        */split/\ * | */unknown/\ *) refuse "may be the number of a MIG device" ;;
        *) take "*:/$1/*" "*:/*/$1/*/*/*/" ;;
    esac
}

range() {
    short "$1" && short "$2" || return
    [ "$1" -le "$2" ] || take || return
    at=$1
    while [ "$at" -le "$2" ]; do
        number "$at" || return
        at=$((at + 1))
    done
}

# instance TEXT: takes the GPU of a MIG device, gpu-.../1/0.
instance() {
    case ${1#*/} in
        /* | */ | *[!0-9/]* | */*/*) take ;;
        */*)
            of_gpu=${1%%/*}
            hexadecimal "${of_gpu#gpu-}" && take "*/$of_gpu/*"
            ;;
        *) take ;;
    esac
}

# address: takes the GPU at a PCI address.
address() {
    case $low in
        0000????:??:??.?) low=${low#0000} ;;
        ??:??.?) low=0000:$low ;;
    esac
    case $low in
        ????:??:??.?) take "*/$low/*" ;;
        *) take ;;
    esac
}

# probed: leaves the question to `wirewatch check` where the last probe is older than `max_age`.
probed() {
    [ "$released" = no ] || return 0
    case $probe in
        none) return 0 ;;
        never) leave 75 "UNKNOWN; no probe yet" ;;
    esac
    whole "$probe" || torn "'probe' is '$probe'"
    # Whole seconds are less than were meant.
    [ $((probe + age + 1)) -le "$max_age" ] || leave 75 "UNKNOWN; the last probe is $((probe + age + 1)) s old"
}

options "$@"
name=${file##*/}
cd -P -- "${file%"$name"}" 2>/dev/null || unknown "its folder is not there, or not for us"
kind=wirewatch-verdict
if [ -n "$of" ] && [ -e "./$name-gpus" ]; then
    kind=wirewatch-verdict-gpus file=$file-gpus name=$name-gpus
fi
# A link is not followed, a pipe not waited for.
[ ! -L "./$name" ] || unknown "it is a link: not believed"
[ -e "./$name" ] || unknown "there is no such file: no daemon keeps it"
[ -f "./$name" ] || unknown "it is not a file"
[ -r "./$name" ] || unknown "it may not be read"
# A redirection that fails does not end the shell here, as `exec`'s would.
# shellcheck disable=SC2317  # where it cannot be opened, the rest is reached
{ verdict; } <"./$name" || :
# shellcheck disable=SC2317
unknown "it cannot be read"
