"""Puts the scripts that asv's page loads from other servers next to the page.

So the published page works without these servers, and sends them no requests. Versions and hashes are those of
``page/package-lock.json``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "page"
MODULES = PAGE / "node_modules"
CACHE = PAGE.parent / ".asv" / "npm"
"""npm's cache, which would otherwise be in the user's home."""
POINTS = ("shadowSize: 0\n", "shadowSize: 0,\n                        points: {show: data.length < 3, radius: 3}\n")
"""A line of one point is invisible: its tile would be blank."""
# The end of an address in asv's page -> the same file in the packages.
FILES = {
    "jquery-3.3.1.min.js": "jquery/dist/jquery.min.js",
    "jquery.flot.min.js": "flot/jquery.flot.js",
    "jquery.flot.time.min.js": "flot/jquery.flot.time.js",
    "jquery.flot.selection.min.js": "flot/jquery.flot.selection.js",
    "jquery.flot.categories.min.js": "flot/jquery.flot.categories.js",
    "jquery.flot.orderBars.js": "flot-orderbars/js/jquery.flot.orderBars.js",
    "stupidtable.min.js": "stupid-table-plugin/stupidtable.min.js",
    "md5.min.js": "blueimp-md5/js/md5.min.js",
    "bootstrap.min.js": "bootstrap/dist/js/bootstrap.min.js",
    "bootstrap.min.css": "bootstrap/dist/css/bootstrap.min.css",
}
_TAG = re.compile(r"<(?:script|link)\b[^>]*?(?:src|href)=\"(https://[^\"]+)\"[^>]*>", re.DOTALL)


def localize(html: Path) -> bool:
    """Rewrite ``index.html`` of a published folder, and copy the files that it names into ``vendor/`` next to it.

    Returns:
        Whether this was done; without npm, the page stays as asv made it.

    Raises:
        LookupError: asv's page names a script that is not known here, which a new version of asv may do.
    """
    if shutil.which("npm") is None:
        return False
    if not all((MODULES / path).is_file() for path in FILES.values()):
        print("publish: waiting for npm, which fetches the scripts of asv's page", flush=True)
        install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--cache", str(CACHE)]
        if subprocess.run(install, cwd=PAGE, check=False).returncode:
            return False
    index = html / "index.html"
    index.write_text(_TAG.sub(_local, index.read_text(encoding="utf-8")), encoding="utf-8")
    grid = html / "summarygrid.js"
    script = grid.read_text(encoding="utf-8")
    if POINTS[0] not in script:
        raise LookupError(f"asv's grid has no {POINTS[0].strip()!r}: change asv_bench/local.py")
    grid.write_text(script.replace(*POINTS), encoding="utf-8")
    for path in FILES.values():
        place = html / "vendor" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(MODULES / path, place)
    shutil.copytree(MODULES / "bootstrap/dist/fonts", html / "vendor/bootstrap/dist/fonts", dirs_exist_ok=True)
    return True


def _local(match: re.Match[str]) -> str:
    name = match[1].rpartition("/")[2]
    if name not in FILES:
        raise LookupError(f"asv's page names {match[1]}, which asv_bench/page does not hold: add it there")
    path = f"vendor/{FILES[name]}"
    if name.endswith(".css"):
        return f'<link rel="stylesheet" href="{path}">'
    return f'<script src="{path}" onerror="js_load_failure()">'
