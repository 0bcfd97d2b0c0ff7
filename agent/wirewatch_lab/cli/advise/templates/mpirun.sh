# nccl-tests over the workers of this MPIJob. Made by `wirewatch advise bench-script`.
set -euo pipefail

tests={{ tests | sh }}
gpus={{ gpus }}
results={{ results | sh }}
# On each worker; `kubectl cp` before it is gone.
logs=/tmp
mkdir -p -- "$results"
mapfile -t nodes < <(sed 's/[ :].*//' /etc/mpi/hostfile)

# launch PROGRAM...: over the nodes in the array `on`.
launch() {
  local hosts name
  local -a given=()
  printf -v hosts "%s:$gpus," "${on[@]}"
  for name in LD_LIBRARY_PATH NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE; do
    [[ ! -v $name ]] || given+=(-x "$name")
  done
  mpirun -np "$((${#on[@]} * gpus))" --host "${hosts%,}" --bind-to none "${given[@]}" "$@" </dev/null
}

# A worker that is running may not answer yet.
on=("${nodes[@]}")
for _ in {1..60}; do
  if launch true; then
    break
  fi
  sleep 5
done

{% include "measure.sh" %}
