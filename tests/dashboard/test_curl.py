"""Commands to copy, run by a real shell: each value arrives as it was, nothing runs, nothing is a key."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.console.views import DeliveryView
from onceward.web.dashboard import curl

HOSTILE = [
    "$(touch pwned)`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "\\'; touch pwned #\n\ntouch pwned\n",
    "it's\x03\ntouch pwned\n",
    "'\x1b[201~\x03\x15touch pwned\r",
    "\x9b31m \x7f \x08\x08 \x1b]0;title\x07 \\x41 \\",
    "\u202e\u2066\u200b\u200d\ufeff\u2028 'é🂡'",
    "!! !$ \x01!! ~ * ? {a,b} [x] && || > pwned < /etc/passwd",
    "@/etc/passwd",
    "-o pwned",
    "$" * 10_000,
    "\x02'" * 5_000,
]
SHELLS = [name for name in ("bash", "zsh") if shutil.which(name)]


def _view(text: str) -> DeliveryView:
    return DeliveryView(
        delivery_id="del_1",
        source="stripe",
        received_at=0,
        outcome="unparsed",
        events=[],
        method="POST",
        url=f"/hooks/stripe?{text}",
        headers={"X-Said": text, "Host": "elsewhere"},
        body=text,
    )


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_delivery_is_sent_again_as_it_came_and_nothing_runs(shell: str, text: str, tmp_path: Path) -> None:
    command = curl.delivery(_view(text), "https://shop.example")
    assert command is not None
    assert all(char.isprintable() or char == "\n" for char in command)
    fake = tmp_path / "bin" / "curl"
    fake.parent.mkdir()
    fake.write_text(f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps(sys.argv[1:]))\n")
    fake.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": f"{fake.parent}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"}

    done = subprocess.run(
        [shell], input=command, cwd=home, env=env, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")
    sent = json.loads(done.stdout)
    assert sent[:4] == ["--fail-with-body", "-X", "POST", f"https://shop.example/hooks/stripe?{text}"]
    assert sent[4:] == ["-H", f"X-Said: {text}", "--data-raw", text]
    assert list(home.iterdir()) == []
