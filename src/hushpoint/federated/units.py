"""Units of systemd for the two that have to be there all the time: the SuperLink, and the node of a site."""

from __future__ import annotations

import sys
from pathlib import Path

_UNIT = """\
# {about}
# Install: cp {name} /etc/systemd/system/ && systemctl daemon-reload && systemctl enable --now {name}
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target

[Service]
User=hushpoint
ExecStart={program} federated {command} {folder} --log json
Restart=on-failure
RestartSec=15
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths={folder}
CacheDirectory=hushpoint
Environment=NUMBA_CACHE_DIR=%C/hushpoint

[Install]
WantedBy=multi-user.target
"""

SERVER, SITE = "hushpoint-superlink.service", "hushpoint-site.service"


def write_units(folder: Path) -> None:
    """``systemd/`` in the folder of a federation: a unit for this server, and one for sites to complete."""
    place, program = folder / "systemd", Path(sys.executable).with_name("hushpoint")
    place.mkdir(parents=True, exist_ok=True)
    server = _UNIT.format(
        about="The SuperLink of this federation. Make the user, and let it own the folder: chown -R hushpoint DIR.",
        name=SERVER,
        description="Hushpoint federation, SuperLink",
        command="superlink",
        folder=_quoted(folder.resolve()),
        program=_quoted(program),
    )
    site = _UNIT.format(
        about="The node of a site. Put in the site's own folder (twice) and where hushpoint is installed there.",
        name=SITE,
        description="Hushpoint federation, node of a site",
        command="site",
        folder='"/var/lib/hushpoint/site"',
        program=_quoted(program),
    )
    (place / SERVER).write_text(server, encoding="utf-8")
    (place / SITE).write_text(site, encoding="utf-8")


def _quoted(path: Path) -> str:
    """A path as systemd reads it, in quotes; what means something to it is doubled."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'
