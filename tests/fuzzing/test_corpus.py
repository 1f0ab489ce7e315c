"""The corpus of the fuzzer: every input runs through its target, and every target has inputs."""

from __future__ import annotations

import pytest

from tests.fuzzing.corpus import FOLDER, FOUND, inputs_of
from tests.fuzzing.seeds import seeds
from tests.fuzzing.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_target_accepts_or_refuses_each_input_of_the_corpus(target: str) -> None:
    """No input raises an error that its reader does not document, and no check of the target fails."""
    inputs = inputs_of(target)
    assert inputs
    for one in inputs:
        try:
            TARGETS[target](one.read_bytes())
        except BaseException as error:
            error.add_note(f"python -m tests.fuzzing {target} --input {one}")
            raise


@pytest.mark.slow
def test_seeds_are_the_inputs_of_the_corpus_that_the_fuzzer_did_not_find() -> None:
    """Each seed is in the corpus, and each other input has the name of a defect."""
    written = {(path.parent.name, path.name) for path in FOLDER.glob("*/*") if not path.name.startswith(FOUND)}
    assert written == {(target, name) for target, name, _ in seeds()}
