"""The public reports on job queues and ledgers, each with the test that would fail if it happened here.

Each test named has the report in its docstring; the wire's and the tools' reports stand in ``tests/test_cases.py``.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

CASES = {
    "test_job_reports": {
        "test_g4_a_worker_that_is_killed_between_two_steps_blocks_neither_its_run_nor_the_next": (
            "rq/rq#2015 huey#733 huey#844 procrastinate#1518 dbos-transact-py#805"
        ),
        "test_a_run_that_took_too_long_says_so_with_its_limit": "rq/rq#1966",
        "test_g3_a_job_that_was_popped_from_two_queues_by_a_worker_that_died_is_rung_for_again": (
            "rq/rq#1716 rq/rq#381"
        ),
        "test_a_job_in_redis_holds_nothing_that_anybody_wrote": "rq-dashboard#526",
        "test_g4_a_tool_that_lets_no_other_thread_run_is_not_begun_again_while_its_worker_lives": "dramatiq#692",
        "test_g3_a_redis_that_forgot_everything_delays_a_waiting_run_by_a_sweep": "dramatiq#527",
        "test_who_knows_the_secret_or_writes_the_row_can_name_handlers_and_run_nothing_else": "globalid#148",
        "test_a_tool_that_wants_another_call_is_told_to_the_model_and_repeated_by_nobody_else": "pydantic-ai#3298",
        "test_a_rule_of_the_app_that_times_out_ends_the_run_and_is_not_retried_for_ever": (
            "pydantic-ai#6975 pydantic-ai#7163"
        ),
    },
    "test_job_cases": {
        "test_a_worker_that_is_told_to_end_as_it_takes_a_run_loses_none": "rq/rq#2236",
        "test_g4_with_all_workers_dead_a_run_can_be_told_from_one_at_work": "rq/rq#756",
        "test_a_run_whose_whole_process_group_is_told_to_end_is_not_stuck": "rq/rq#507 langgraph#7361",
        "test_g8_of_many_that_wait_those_that_were_stopped_never_run": "rq/rq#2160",
        "test_g8_a_run_that_a_person_stopped_has_not_failed_unexpectedly": "rq/rq#1389",
        "test_g4_a_model_that_thinks_longer_than_the_lease_is_asked_once": "rq/rq#2061",
        "test_a_worker_whose_connections_were_closed_while_it_waited_works_on": "rq/rq#2040 Flask-RQ2#90",
        "test_forks_of_a_process_that_has_used_its_engine_share_no_connection": "flask-rq#30 rq/rq#900",
        "test_a_job_that_comes_before_its_row_is_visible_runs_once_as_it_is": "netbox#18880",
        "test_a_redis_that_stalls_longer_than_the_timeout_applies_a_write_once": "redis-py#3554",
        "test_g4_a_tool_that_is_longer_than_the_lease_is_not_begun_again_while_its_worker_lives": (
            "celery#5935 celery#5306 kombu#337"
        ),
        "test_g4_many_rings_for_one_run_at_once_carry_it_out_once": "dramatiq#431",
        "test_a_database_that_fails_while_the_record_is_read_leaves_the_run_for_a_resume": "rails#57742 rails#40318",
        "test_g4_a_worker_that_wakes_up_after_its_lease_commits_nothing": "dbos#812 dbos#818",
    },
    "test_generate_for": {
        "test_a_rolled_back_view_starts_no_run": "rq/rq#327",
    },
    "test_worker": {
        "test_rqs_own_worker_carries_out_runs_as_documented": "Flask-RQ2#50",
    },
    "test_tls": {
        "test_runs_one_after_the_other_in_forks_of_a_process_that_used_its_database_over_tls": (
            "django-rq#123 celery#1564"
        ),
    },
    "test_conversations": {
        "test_a_key_of_another_request_is_an_error_and_the_first_goes_on": "dbos-transact-ts#725",
    },
}
"""By file and test, the reports that it is about."""


@pytest.mark.parametrize("file", CASES)
def test_each_report_has_its_test(file: str) -> None:
    told = docstrings(file)
    missing = [
        (name, report)
        for name, reports in CASES[file].items()
        for report in reports.split()
        if report not in told.get(name, "")
    ]
    assert not missing


@cache
def docstrings(file: str) -> dict[str, str]:
    """What the tests of a file say of themselves, those that are skipped left out."""
    tree = ast.parse((Path(__file__).parent / f"{file}.py").read_text())
    return {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and "skip" not in "".join(map(ast.unparse, node.decorator_list))
    }
