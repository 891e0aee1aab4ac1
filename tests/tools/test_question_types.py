"""The page's types of questions are those of the tables."""

from tools import question_types


def test_the_committed_types_are_those_of_now():
    assert question_types.main(["--check"]) == 0, "run: make reference"


def test_the_file_is_written_and_an_older_one_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(question_types, "FILE", tmp_path / "fields.ts")
    question_types.FILE.write_text("export type QuestionFields = never;\n")
    assert question_types.main(["--check"]) == 1
    assert question_types.main([]) == 0
    assert question_types.main(["--check"]) == 0
    text = question_types.FILE.read_text()
    assert "readonly withQueue?: boolean | undefined;" in text
    assert text.count("export interface") == 15
