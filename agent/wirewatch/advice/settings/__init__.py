"""Which of NCCL's settings a job shall have, and what is wrong with those it has."""
