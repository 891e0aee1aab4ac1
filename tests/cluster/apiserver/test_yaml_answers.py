"""YAML responses: long strings take linear time, and strings that look like numbers are quoted."""

from __future__ import annotations

import time

import pytest
import yaml

from moorage.cluster.apiserver.schema.representations import as_yaml

LONG = 30_000
TEXTS = {
    "digits": "1" * LONG + "x",
    "digits around a dot": "1" * LONG + "." + "1" * LONG + "x",
    "underscores": "0" + "_" * LONG + "x",
    "an exponent": "1e" + "1" * LONG + "x",
    "hexadecimal digits": "0x" + "a" * LONG + "!",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_long_string_that_looks_like_a_number_is_encoded_at_once(text):
    began = time.process_time()
    assert yaml.safe_load(as_yaml({"data": text})) == {"data": text}
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["y", "N", "1", "-1.5", ".5", "5.", "1_000", "1e3", "-.5E+1", "0x1F", "0b10", "0o17", "", "-"])
def test_what_go_reads_as_a_number_or_boolean_is_quoted(text):
    assert as_yaml({"data": text}) == f"data: '{text}'\n".encode()


@pytest.mark.parametrize("text", ["web", "1.2.3", "1e", "0x", "v1", "12h"])
def test_other_strings_are_unquoted(text):
    assert as_yaml({"data": text}) == f"data: {text}\n".encode()
