[[ ${#nodes[@]} -gt 0 ]] || { echo "the launcher names no nodes" >&2; exit 1; }

# FIRST LAST FACTOR in bytes, as -b, -e and -f of nccl-tests.
sizes=(
{% for first, last, factor in ranges %}
  '{{ first }} {{ last }} {{ factor }}'
{% endfor %}
)
ops=({{ ops | join(" ") }})
# One GPU a process, as jobs run. -c 1 checks the values: a wrong one ends the test with an error.
options=(-g 1 -n {{ iterations }} -w {{ warmup }} -c 1)

# No setting of NCCL's is forced. What scripts force for "tuning" measures the script: on 4 H200 NCCL_MAX_NCHANNELS=4
# took 340 GB/s down to 98, NCCL_ALGO=Ring keeps NVLS from being used, NCCL_NET_GDR_LEVEL=5 is SYS, and `auto` is no
# value for NCCL_ALGO or NCCL_PROTO. Set here only what your jobs set too: then it is they that are measured.
# NCCL's log goes into files, one a process: in the table it would tear rows. Plain INFO has no lines of the network.
export NCCL_DEBUG=${NCCL_DEBUG:-INFO}
export NCCL_DEBUG_SUBSYS=${NCCL_DEBUG_SUBSYS:-INIT,ENV,NET,GRAPH,TUNING}
export NCCL_DEBUG_FILE=${logs//%/%%}/nccl.%h.%p.log

status=0

# measure NAME NODE...: all operations and sizes over these nodes, into $results/NAME.OPERATION.txt. What fails does
# not end the others; its exit code is kept through the pipe.
measure() {
  local name=$1 op range first last factor failed=0
  local -a on=("${@:2}")
  for op in "${ops[@]}"; do
    for range in "${sizes[@]}"; do
      read -r first last factor <<<"$range"
      launch "$tests/${op}_perf" -b "$first" -e "$last" -f "$factor" "${options[@]}" 2>&1 |
        tee -a -- "$results/$name.$op.txt" || failed=$?
    done
  done
  return "$failed"
}

# all_of PROCESS...: wait for measurements that run side by side.
all_of() {
  local process
  for process in "$@"; do
    wait "$process" || status=$?
  done
}
{% if alone %}

# Every node by itself, all at once: one that is slow alone is so in any company.
running=()
for node in "${nodes[@]}"; do
  measure "alone.$node" "$node" >/dev/null &
  running+=("$!")
done
all_of "${running[@]}"
{% if launcher == "mpijob" %}
cat -- "$results"/alone.*.txt
{% endif %}
{% endif %}
{% if pairs %}

# Neighbours in pairs, in two rounds: a node that is in both slow pairs is the slow one.
for begin in 0 1; do
  running=()
  for ((i = begin; i + 1 < ${#nodes[@]}; i += 2)); do
    measure "pair.${nodes[i]}.${nodes[i + 1]}" "${nodes[i]}" "${nodes[i + 1]}" >/dev/null &
    running+=("$!")
  done
  all_of "${running[@]}"
done
{% if launcher == "mpijob" %}
cat -- "$results"/pair.*.txt
{% endif %}
{% endif %}

measure all "${nodes[@]}" || status=$?

# Each table beside what the wires should give, as JSON and as series for Prometheus. Codes of parse: 0 good, 3 nothing
# to judge by.
if command -v wirewatch >/dev/null; then
  for table in "$results"/*.txt; do
    op=${table%.txt}
    op=${op##*.}
    code=0
    wirewatch parse "$table" --op "$op" || code=$?
    wirewatch parse "$table" --op "$op" --json >"${table%.txt}.json" || true
    wirewatch parse "$table" --op "$op" --openmetrics >"${table%.txt}.prom" || true
    if ((status == 0 && code != 3)); then
      status=$code
    fi
  done
else
  echo "wirewatch is not here: take $results to where it is, and run: wirewatch parse FILE --json"
fi
exit "$status"
