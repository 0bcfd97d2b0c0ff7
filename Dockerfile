# The image of agent and prober: docs/install.md. Built from its folder, which .dockerignore narrows to what is copied here.
#   agent   what reads and serves, no engine: no probe runs
#   torch   with torch as the engine, for who has it anyway
#   nccl    with NCCL and its bindings: the default
# Any Debian-like Python 3.11 to 3.13 with venv; nothing is installed into it, so the last stages run nothing and build for any platform.
ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_ONLY_BINARY=:all: PIP_REQUIRE_HASHES=1
RUN python3 -m venv /tools && python3 -m venv --without-pip /opt/wirewatch \
    && mkdir -p /empty/var/lib/wirewatch /empty/run/wirewatch && chmod 0750 /empty/var/lib/wirewatch /empty/run/wirewatch

# Each of these adds its own packages to the same empty environment, so that each is a layer of the image.
FROM tools AS needs
COPY deploy/image/agent.txt /src/
RUN /tools/bin/pip --python /opt/wirewatch/bin/python install --requirement /src/agent.txt

# `wirewatch fleet controller`, which runs once in a cluster.
FROM tools AS controller-needs
COPY deploy/image/controller.txt /src/
RUN /tools/bin/pip --python /opt/wirewatch/bin/python install --requirement /src/controller.txt

# What jobs load (docs/jobs.md): of libc it asks nothing newer than 2.17, whatever this base has, and no compiler gets into the image.
FROM ${BASE} AS tap
# hadolint ignore=DL3008
RUN command -v cc || { apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*; }
COPY agent /src/agent
RUN PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/src/agent python3 -c "from pathlib import Path; from wirewatch.jobs.tap.tapfile import install; install(Path('/tap'))"

FROM tools AS app
COPY deploy/image/build.txt /src/
RUN /tools/bin/pip install --requirement /src/build.txt
COPY pyproject.toml README.md LICENSE /src/
COPY agent /src/agent
COPY --from=tap /tap/libwirewatch-tap.so /src/agent/tap/
RUN unset PIP_REQUIRE_HASHES && /tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels /src \
    && /tools/bin/pip --python /opt/wirewatch/bin/python install --no-deps /wheels/*.whl

FROM tools AS nccl-engine
COPY deploy/image/nccl.txt /src/
RUN /tools/bin/pip --python /opt/wirewatch/bin/python install --requirement /src/nccl.txt

FROM tools AS torch-engine
# Another one for another build of torch.
ARG TORCH=deploy/image/torch.txt
COPY ${TORCH} /src/torch.txt
RUN /tools/bin/pip --python /opt/wirewatch/bin/python install --requirement /src/torch.txt

FROM ${BASE} AS agent
ARG BASE
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="wirewatch" \
    org.opencontainers.image.description="Watches the wires between a node's GPUs: NVLink, PCIe, InfiniBand, RoCE" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/wirewatch/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1
COPY --from=tools --chown=65532:65532 /empty/ /
COPY --from=controller-needs /opt/wirewatch /opt/wirewatch
COPY --from=needs /opt/wirewatch /opt/wirewatch
COPY --from=app /opt/wirewatch /opt/wirewatch
USER 65532:65532
# Process 1 is the agent: it ends on SIGTERM, and collects what its workers leave behind.
ENTRYPOINT ["wirewatch"]
CMD ["serve"]

FROM agent AS torch
COPY --from=torch-engine /opt/wirewatch /opt/wirewatch

FROM agent AS nccl
COPY --from=nccl-engine /opt/wirewatch /opt/wirewatch
