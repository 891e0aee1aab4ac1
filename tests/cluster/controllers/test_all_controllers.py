"""Which controllers run, by the words of kube-controller-manager."""

import pytest

from moorage.cluster.controllers.all_controllers import all_controllers, chosen
from moorage.errors import InputError

ALL = len(all_controllers())
WORDS = {  # what is asked for, what of it runs
    "all": (["*"], ALL),
    "none": ([], 1),
    "one": (["job-controller"], 2),
    "all but two": (["*", "-job-controller", "-disruption-controller"], ALL - 2),
    "the first word counts": (["job-controller", "-job-controller"], 2),
    "none but one is not called off": (["-job-controller"], 1),
}


@pytest.mark.parametrize(("words", "count"), WORDS.values(), ids=WORDS)
def test_the_controllers_flag_selects_controllers(words, count):
    found = chosen(all_controllers(), words)
    assert len(found) == count
    assert found[0].name == "kubelet"


def test_an_unknown_controller_is_rejected_with_the_known_ones():
    with pytest.raises(InputError) as refused:
        chosen(all_controllers(), ["*", "-cloud-controller"])
    assert '"cloud-controller" is not in the list of known controllers' in str(refused.value)
    assert "node-lifecycle-controller" in str(refused.value)


def test_kubelets_cannot_be_disabled():
    with pytest.raises(InputError):
        chosen(all_controllers(), ["-kubelet"])
