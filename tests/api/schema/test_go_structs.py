"""Which lines of two values differ, in values of few and of very many lines."""

from moorage.api.schema import go_structs


def spec(count, image="i"):
    return {"containers": [{"name": f"c{i}", "image": "i"} for i in range(count)] + [{"name": "x", "image": image}]}


def test_one_change_is_the_same_among_few_and_many_lines(monkeypatch):
    old, new = spec(3), spec(3, "j")
    few = go_structs.changed_lines("core.PodSpec", old, new)
    assert '-   "Image": "i",\n+   "Image": "j",\n' in few
    monkeypatch.setattr(go_structs, "_MOST_LINES", 10)
    assert go_structs.changed_lines("core.PodSpec", old, new) == few


def test_equal_values_have_no_changed_lines(monkeypatch):
    monkeypatch.setattr(go_structs, "_MOST_LINES", 10)
    assert go_structs.changed_lines("core.PodSpec", spec(3), spec(3)) == ""


def test_a_hunk_holds_as_many_lines_as_it_says():
    old, new = spec(90), spec(60, "j")
    head, *lines = go_structs.changed_lines("core.PodSpec", old, new).splitlines()
    counts = [int(part.split(",")[1]) for part in head.split()[1:3]]
    assert counts == [sum(line[0] in f" {sign}" for line in lines) for sign in "-+"]
    assert len(lines) > 200
