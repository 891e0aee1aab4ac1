"""Pods that come and go while a fault is at work."""

import asyncio
import itertools


async def churn(stage, seconds, *, every_s=0.3):
    """Pods come and go for a while, on three nodes."""
    for number in range(3):
        stage.world.node(f"n{number}", zone="ab"[number % 2])
    end, names = stage.now + seconds, itertools.count()
    while stage.now < end:
        stage.world.pod(f"churn-{next(names):06}", cpu="500m")
        pods = stage.world.pods()
        if len(pods) > 15:
            stage.world.delete_pod(pods[0]["metadata"]["name"], grace=0)
        await asyncio.sleep(every_s)
