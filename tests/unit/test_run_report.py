from mt_cli.evaluation.results import Report


def report_of(num_steps, **others):
    counts = dict.fromkeys(("best_step", "num_target_tokens", "num_parameters"), 7)
    return Report.model_validate(
        {"split": "test", "stopped_because": "patience", "num_steps": num_steps} | counts | others
    )


def test_scores_have_keys_of_their_own_in_json():
    scores = {name: {"score": 1.5, "signature": name, "later": 3} for name in ("bleu", "chrf++")}
    tree = {"split": "test", "num_sentences": 4, **scores, "exact_match": 25.0}
    report = report_of(9, **tree, extra_tests={"web": {"split": "web", "ter": {"score": 2.0}}})
    assert list(report.scores) == ["bleu", "chrf++"] and report.extra_tests["web"].scores["ter"].score == 2.0
    written = report.model_dump(mode="json", exclude_unset=True)
    assert list(written)[:5] == [*tree] and {key: written[key] for key in tree} == tree
    assert Report.model_validate(written) == report
