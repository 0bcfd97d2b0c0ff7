"""The collectors, one file or folder each; `catalogue.discover` finds them by looking here."""
