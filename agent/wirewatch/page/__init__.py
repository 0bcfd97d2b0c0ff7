"""The status page at `/`: published state and the time in, frozen values out, HTML from those."""
