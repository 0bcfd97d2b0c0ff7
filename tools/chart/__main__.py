"""`make chart`: writes what is made."""

from tools.chart.made import made, stray

for path in stray():
    path.unlink()
for path, text in made().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
