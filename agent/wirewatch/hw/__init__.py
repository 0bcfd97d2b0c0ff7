"""The ports' adapters, each the only importer of its library; recordings and what plays them back."""
