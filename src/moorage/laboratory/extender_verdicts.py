"""The verdicts of extenders, which are asked about the nodes that no plugin refuses, as kube-scheduler does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from moorage.cycle.extender_wire import EXTENDER, ExtenderError, Whole
from moorage.cycle.extenders import Asking, Consultation, ExtenderAnswer, HTTPExtender, T
from moorage.errors import MoorageError
from moorage.framework.effects import Question
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Status
from moorage.laboratory.verdicts import EveryVerdict, Judgement, Stage

__all__ = ["with_extenders"]

Ask = Callable[[Question], bytes]


def with_extenders(judged: EveryVerdict, extenders: Iterable[HTTPExtender], whole: Whole, ask: Ask) -> EveryVerdict:
    """Return the verdicts, extended by those of the extenders that filter nodes for the pod.

    An extender that fails refuses all remaining nodes, unless it is ignorable.
    """
    consultation = Consultation.of(judged.pod, extenders, whole)
    filtering = [one.shown for one in consultation.extenders if one.filter_verb]
    rows = np.flatnonzero(judged.feasible)
    if not filtering or not len(rows):
        return judged
    verdicts = Verdicts(len(judged.names))
    try:
        _answered(consultation.filter(rows, judged.snapshot, verdicts), ask)
    except ExtenderError as error:
        verdicts.refuse(rows, Status(Code.ERROR, EXTENDER, (str(error),)))
    name = f"{EXTENDER} {', '.join(filtering)}"
    asked = Judgement(name, Stage.EXTENDER, judged.snapshot.nodes, given=verdicts)
    return replace(judged, judgements=(*judged.judgements, asked))


def _answered(asking: Asking[T], ask: Ask) -> T:
    """Answer the questions of a consultation, one after the other."""
    try:
        questions = next(asking)
        while True:
            questions = asking.send(tuple(_answer(one, ask) for one in questions))
    except StopIteration as end:
        found: T = end.value
        return found


def _answer(question: Question, ask: Ask) -> ExtenderAnswer:
    try:
        return ExtenderAnswer(ask(question))
    except MoorageError as error:
        return ExtenderAnswer(error=str(error))
