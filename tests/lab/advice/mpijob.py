"""The fields of an MPIJob v2beta1, written from those of Kubeflow's CustomResourceDefinition; pods are open.

Manifests were held against that definition itself while they were written: docs/adr/0047.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Named(Closed):
    name: str = Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
    namespace: str = "default"


class PodTemplate(Closed):
    spec: dict[str, Any]


class ReplicaSpec(Closed):
    replicas: int = Field(ge=0)
    restartPolicy: Literal["Always", "OnFailure", "Never"] = "Never"  # noqa: N815
    template: PodTemplate


class ReplicaSpecs(Closed):
    Launcher: ReplicaSpec
    Worker: ReplicaSpec


class RunPolicy(Closed):
    activeDeadlineSeconds: int | None = None  # noqa: N815
    backoffLimit: int | None = Field(default=None, ge=0)  # noqa: N815
    cleanPodPolicy: Literal["None", "Running", "All"] = "None"  # noqa: N815
    managedBy: str | None = None  # noqa: N815
    suspend: bool = False
    ttlSecondsAfterFinished: int | None = None  # noqa: N815


class Spec(Closed):
    slotsPerWorker: int = 1  # noqa: N815
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "AtStartup"  # noqa: N815
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"  # noqa: N815
    mpiReplicaSpecs: ReplicaSpecs  # noqa: N815
    runLauncherAsWorker: bool = False  # noqa: N815
    runPolicy: RunPolicy = Field(default_factory=RunPolicy)  # noqa: N815
    sshAuthMountPath: str = "/root/.ssh"  # noqa: N815


class MpiJob(Closed):
    apiVersion: Literal["kubeflow.org/v2beta1"]  # noqa: N815
    kind: Literal["MPIJob"]
    metadata: Named
    spec: Spec


class ConfigMap(Closed):
    apiVersion: Literal["v1"]  # noqa: N815
    kind: Literal["ConfigMap"]
    metadata: Named
    data: dict[str, str]
