"""Everything that is released, made into one folder: `make release`, docs/install.md."""
