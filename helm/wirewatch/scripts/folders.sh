# Folders of the node, each an argument, become the agents': fsGroup does nothing for hostPath. Root without any
# capability may give what it owns to its own group. Only a folder with our mark is changed, and only one that has
# nothing of others is marked. Of rings the mark is the folder that was made for those of pods.
own=$(id -g) mark=.made-by-wirewatch rings=/run/wirewatch-jobs
for at; do
  if [ ! -O "$at" ]; then echo "$at: another user's folder, left as it is"; continue; fi
  cd "$at" || exit 1
  if [ "$at" = $rings ]; then
    marked=$(find . -maxdepth 1 -path ./pods -type d -user 0 -group "$own" -perm -2000 -print -quit)
  else
    marked=$(find . -maxdepth 1 -path ./$mark -type f -user 0 -print -quit)
  fi
  if [ -z "$marked" ]; then
    other=$(find . -mindepth 1 -maxdepth 1 ! -name lost+found ! -name agent.lock ! -name probe.lock \
      ! -name 'latches.json*' ! -name 'baseline.json*' ! -name 'machine.json*' ! -name 'pairs.json*' \
      ! -name 'probes.sqlite*' ! -name 'nics.sqlite*' \
      ! -name pods ! -name rings ! -name containers ! -name slurm ! -name '*.ring' -print -quit)
    if [ -n "$other" ]; then
      if [ -n "$(find . -maxdepth 0 -group "$own" -perm -020)" ]; then echo "$at: the agents' already"; continue; fi
      echo "$at: the folder of the node has ${other#./}, which is not wirewatch's. Nothing was changed." \
        "state.hostPath, gate.hostPath and jobs.hostPath need a folder each that nothing else uses." >&2
      exit 1
    fi
  fi
  if [ "$at" = $rings ]; then
    # The kubelet makes the folders of pods with the mode and the group of theirs: any user of a pod writes, the agent
    # removes. None but root and the agent comes here otherwise, so that nobody else gives a folder its name.
    chgrp "$own" .; chmod 0750 .
    mkdir -p pods
    if [ -O pods ]; then chgrp "$own" pods; chmod 2773 pods; fi
  else
    : > $mark
    find . -xdev \( -name lost+found -o -type d ! -user 0 \) -prune -o \
      -user 0 ! -type l -exec chgrp "$own" {} + -exec chmod g+rwX {} +
  fi
done
