#!/bin/bash
#SBATCH --job-name={{ name | sbatch }}
#SBATCH --nodes={{ nodes }}
#SBATCH --ntasks-per-node={{ gpus }}
#SBATCH --gpus-per-node={{ gpus }}
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time={{ time | sbatch }}
{% if partition %}
#SBATCH --partition={{ partition | sbatch }}
{% endif %}
{% if account %}
#SBATCH --account={{ account | sbatch }}
{% endif %}

# nccl-tests over {{ over }}, read by `wirewatch parse`. Made by `wirewatch advise bench-script`.
# Change: the lines #SBATCH above, and here: where nccl-tests are (built with MPI=1), where results go, and the plugin
# of --mpi that your MPI was built for (`srun --mpi=list`).
set -euo pipefail

tests={{ tests | sh }}
gpus={{ gpus }}
# A prolog that fails drains its node and queues this job again: each start has a folder of its own.
results={{ results | sh }}/${SLURM_JOB_ID:?start it with sbatch}.${SLURM_RESTART_COUNT:-0}
mkdir -p -- "$results"
results=$(cd -- "$results" && pwd)
logs=$results
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
{% if image %}
# Containers by Slurm's plugin pyxis; nccl-tests are looked for inside.
container=(--container-image={{ image | sh }} --container-mounts="$results:$results")
{% else %}
container=()
{% endif %}

# launch PROGRAM...: over the nodes in the array `on`. No process is bound to a core: NCCL's threads need several, and go
# near their GPU by themselves.
launch() {
  local IFS=,
  srun {% if mpi %}--mpi={{ mpi | sh }} {% endif %}--nodes="${#on[@]}" --ntasks="$((${#on[@]} * gpus))" --ntasks-per-node="$gpus" \
    --nodelist="${on[*]}" --cpu-bind=none "${container[@]}" "$@" </dev/null
}

{% include "measure.sh" %}
