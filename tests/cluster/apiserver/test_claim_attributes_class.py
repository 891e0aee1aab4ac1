import pytest

from moorage.rules.admission import update_validation


@pytest.mark.parametrize(("phase", "faults"), [("Bound", 0), ("Pending", 1)])
def test_only_a_bound_claim_may_change_its_attributes_class(phase, faults):
    old, new = (
        {"spec": {"volumeName": "v", "volumeAttributesClassName": name}, "status": {"phase": phase}} for name in ("a", "b")
    )
    assert len(list(update_validation._claim(old, new))) == faults
