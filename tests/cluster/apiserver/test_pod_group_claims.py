from tests.cluster.apiserver.test_pod_groups import DEVICES, GROUPS, group, made, refusal, store_with

REQUESTED = [{"name": name, "resourceClaimTemplateName": "t"} for name in "ab"]


def test_a_group_has_a_status_for_each_claim():
    store = store_with(DEVICES)
    made(store, group(resourceClaims=REQUESTED))
    both = [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimName": "y"}]
    held = store.change(
        GROUPS, "default", "g", lambda one: one.update(status={"resourceClaimStatuses": both}), subresource="status"
    )
    assert held.document()["status"]["resourceClaimStatuses"] == both
    twice = {"resourceClaimStatuses": [both[0], both[0]]}
    code, text = refusal(store.change, GROUPS, "default", "g", lambda one: one.update(status=twice), subresource="status")
    assert code == 422
    assert "status.resourceClaimStatuses[1]" in text
    assert "Duplicate value" in text
