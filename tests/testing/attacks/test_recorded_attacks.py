"""Attacks on which the embedded server once answered differently than kube-apiserver v1.36.2, with the answers of that one.

``recorded_attacks.json`` holds one attack a line: user, method, target, headers and body, then code, reason, causes, message
and warnings of kube-apiserver (a distribution's build, without controllers). Messages are left out where causes say the same.
"""

import asyncio
import json
from pathlib import Path

import pytest

from moorage.testing.attacks.differences import masked, read_body, status_causes
from moorage.testing.attacks.making import Attack
from moorage.testing.attacks.sides import embedded_side

CASES = json.loads((Path(__file__).parent / "recorded_attacks.json").read_text(encoding="utf-8"))


def judged(answer):
    document = read_body(answer)
    status = document if isinstance(document, dict) and document.get("kind") == "Status" else {}
    causes = [[*one] for one in status_causes(status.get("details") or {})]
    message = masked(status.get("message", "")) if not causes else ""
    return [answer.code, status.get("reason", ""), causes, message, [masked(one) for one in answer.warnings]]


async def answers():
    found = []
    async with embedded_side(3) as side:
        for who, method, target, headers, body, *wanted in CASES:
            raw = (tuple(map(tuple, headers)), body.encode("latin-1"))
            attack = Attack(0, who, None, method, target, *raw, "", is_plain=True)
            answer = await side.attacked.ask(attack.raw(side.tokens[who]))
            found.append((f"{method} {target}", judged(answer), wanted))
            if method not in {"GET", "HEAD"} and answer.code < 400:
                await side.restore_all()
    return found


@pytest.mark.slow
def test_attacks_are_answered_as_by_kube_apiserver():
    assert len(CASES) > 100
    assert [one for one in asyncio.run(answers()) if one[1] != one[2]] == []
