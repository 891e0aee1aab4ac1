import time

from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold, Wait


class Slow:
    name = "Slow"

    def filter_node(self, pod, node):
        if pod.name == "slow" and node.name == "node-1":
            time.sleep(14)


class Exits:
    name = "Exits"

    def filter_node(self, pod, node):
        if pod.name == "slow":
            raise SystemExit(3)


class WaitStr:
    name = "WaitStr"

    def permit(self, state, pod, node):
        return Wait("10") if pod.name == "slow" else None


class HintArity:
    name = "HintArity"

    def filter_node(self, pod, node):
        return Hold.because("never") if pod.name == "slow" else None

    def wakes_on(self):
        yield Wake(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), when=lambda pod: False)
