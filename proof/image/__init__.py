"""The image built from the Dockerfile with buildah and run with podman: `make e2e-image`."""
