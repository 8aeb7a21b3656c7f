"""Which test shows which of the browser checks T01 to T38: the table of the promises that a page makes."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SHOWN_BY: dict[str, tuple[str, ...]] = {
    # A request is on the page in under 300 ms, before any worker starts.
    "T01": ("panel/test_form.py::test_t01_a_request_is_on_the_page_at_once_and_before_any_worker",),
    # Two people watch a run of a dozen changes, and both end with the page as it is; no id is there twice.
    "T02": (
        "e2e/test_main_job.py::test_two_people_watch_one_assessment_and_both_end_with_the_page_as_it_is",
        "live/test_watched.py::test_an_element_that_is_there_twice_is_found",
    ),
    # A handshake that is held back until the run has ended costs nothing.
    "T03": ("e2e/test_main_job.py::test_a_socket_held_back_until_the_run_has_ended_misses_nothing",),
    # Offline again and again during one run.
    "T04": (
        "live/test_storms.py::test_g7_every_broadcast_arrives_although_the_line_drops_for_two_seconds_five_times",
        "e2e/test_main_job.py::test_offline_for_five_seconds_in_the_middle",
    ),
    # Frames that come twice, late or never.
    "T05": (
        "live/test_browser.py::test_t05_frames_that_come_twice_in_another_order_or_never_leave_each_comment_there_once",
        "live/test_browser.py::test_case_16_duplicated_and_late_appends_show_once",
        "live/test_browser.py::test_case_21_a_late_older_version_is_ignored",
        "live/test_browser.py::test_a_gap_in_a_text_makes_the_page_fetch_itself",
    ),
    # A history that was trimmed below the page's position.
    "T06": ("live/test_browser.py::test_case_9_a_trimmed_history_makes_the_page_fetch_itself",),
    # The web process is killed in the middle.
    "T07": ("e2e/test_main_job.py::test_the_web_process_killed_in_the_middle",),
    # The worker is killed at each point; one row for each effect, and the page says that the run was resumed.
    "T08": (
        "runs/test_crashes.py::test_g1_g2_g4_g7_a_fault_anywhere_changes_nothing",
        "e2e/test_main_job.py::test_a_worker_killed_between_two_tools_doubles_nothing",
        "panel/test_run_on_a_page.py::test_a_run_whose_worker_died_is_resumed_on_the_page_in_its_order",
    ),
    # Stop, in the middle of a text and between tools.
    "T09": (
        "panel/test_run_on_a_page.py::test_t09_stop_ends_a_text_and_a_list_of_tools_in_time_and_nothing_comes_after",
        "runs/test_stop.py::test_g8_after_a_tool_and_before_the_next",
        "runs/test_stop.py::test_after_a_stop_the_next_request_works",
    ),
    # Two tabs decide at the same moment.
    "T10": (
        "panel/test_approvals.py::"
        "test_t10_of_two_tabs_that_approve_at_the_same_moment_one_does_and_the_other_hears_who_did",
        "panel/test_approvals.py::test_t10_the_slower_of_two_hears_who_was_faster",
    ),
    # Approved with another argument.
    "T11": (
        "panel/test_approvals.py::test_t11_a_changed_argument_runs_and_both_show",
        "dashboard/test_run_page.py::test_t11_what_the_model_wanted_and_what_the_person_made_of_it_are_both_shown",
        "dashboard/test_run_page.py::test_t11_a_call_that_a_person_changed_is_told_with_what_came_of_it",
    ),
    # A decision that was sent by hand, forged, or is about what is not there.
    "T12": ("panel/test_in_control.py::test_t12_a_decision_sent_by_hand_is_refused_and_changes_nothing",),
    # A tampered stream, another's, and one of somebody who was signed out.
    "T13": (
        "live/test_browser.py::test_t13_a_tampered_token_is_refused_and_not_tried_again",
        "live/test_socket.py::test_a_token_made_for_someone_else_closes_4403_and_nothing_is_heard",
        "live/test_socket.py::test_the_rule_is_asked_again_so_that_a_logout_closes_the_socket",
    ),
    # Hostile text.
    "T14": (
        "panel/test_manners.py::test_t14_hostile_text_is_text_everywhere",
        "live/test_actions.py::test_t14_case_39_what_a_model_writes_is_never_run",
        "e2e/test_main_job.py::test_hostile_text_stays_text",
        "dashboard/test_run_page.py::test_t14_hostile_text_is_text_wherever_it_stands",
    ),
    # What a person writes while the AI changes another field, or the same.
    "T15": (
        "live/test_typing.py::test_t15_text_caret_and_scroll_stay_while_another_version_arrives",
        "live/test_typing.py::test_the_notice_offers_both_versions_and_switches_between_them",
        "example_app/test_studio_in_browser.py::test_what_a_person_types_is_kept_while_the_ai_rewrites_it",
    ),
    # A second request while the first is at work.
    "T16": ("panel/test_in_control.py::test_t16_a_second_request_waits_and_nothing_of_the_two_is_mixed",),
    # A service that is too busy: a countdown, and it goes on alone.
    "T17": (
        "e2e/test_main_job.py::test_g9_a_failed_model_call_is_made_again_with_a_countdown_on_the_page",
        "dashboard/test_run_page.py::test_attempts_that_came_to_nothing_stand_where_they_happened",
    ),
    # No worker.
    "T18": (
        "panel/test_in_control.py::test_t18_without_a_worker_the_page_says_so_in_time_and_starting_one_completes_the_run",
        "e2e/test_main_job.py::test_what_was_asked_is_on_every_page_before_any_worker_starts",
    ),
    # Undo after a person changed one of the fields, and redo.
    "T19": (
        "panel/test_in_control.py::test_t19_undo_restores_what_nobody_changed_since_lists_the_rest_and_redo_brings_it_back",
        "panel/test_in_control.py::"
        "test_t19_undo_restores_what_nobody_changed_since_lists_the_rest_and_redo_brings_it_back",
        "example_app/test_control_in_browser.py::test_t19_three_weights_return_and_the_fourth_is_left_to_its_person",
    ),
    # A preview leaves the database byte for byte as it was; of five changes three are accepted.
    "T20": (
        "example_app/test_control_in_browser.py::test_t20_a_preview_changes_no_row_and_three_of_five_are_accepted",
        "panel/test_proposals.py::test_t20_nothing_is_saved_before_it_is_accepted",
    ),
    # Away and back.
    "T21": (
        "live/test_browser.py::test_t21_case_15_away_and_back_ten_times_leaves_one_socket_and_one_subscription_of_each",
    ),
    # A page that was frozen.
    "T22": ("live/test_browser.py::test_t22_a_page_that_was_frozen_catches_up_when_it_thaws",),
    # Axe and contrast, in light and dark.
    "T23": (
        "panel/test_manners_of_pages.py::test_t23_axe_finds_nothing_to_say_of_any_page",
        "panel/test_manners.py::test_t23_axe_finds_nothing_to_say",
        "panel/test_manners.py::test_t23_words_have_contrast",
        "dashboard/test_in_browser.py::test_t23_axe_finds_nothing_to_say",
        "example_app/test_studio_in_browser.py::test_t23_axe_finds_nothing_to_say_of_a_page_that_two_people_have_open",
        "example_app/test_control_in_browser.py::test_t23_axe_finds_nothing_to_say_of_the_pages_of_control",
    ),
    # What a screen reader hears.
    "T24": ("panel/test_manners.py::test_t24_a_screen_reader_hears_a_run_in_few_words",),
    # By keyboard alone.
    "T25": (
        "panel/test_in_control.py::test_t25_a_whole_story_by_keyboard_keeps_the_focus_and_shows_it",
        "dashboard/test_in_browser.py::test_t25_a_keyboard_reaches_everything_and_the_focus_is_seen",
        "panel/test_run_on_a_page.py::test_an_open_card_stays_open_and_focused_while_it_changes",
    ),
    # Reduced motion.
    "T26": (
        "panel/test_manners_of_pages.py::test_t26_nothing_moves_for_who_wants_no_motion_and_forced_colours_leave_edges",
        "panel/test_in_control.py::test_t26_with_reduced_motion_nothing_is_animated",
    ),
    # Without scripts.
    "T27": (
        "panel/test_form.py::test_t27_without_scripts_the_form_works_and_a_reload_shows_the_results",
        "panel/test_form.py::test_t27_without_scripts_a_failed_run_is_retried",
        "dashboard/test_in_browser.py::test_t27_without_a_script_pages_filters_and_links_work",
    ),
    # A strict content security policy.
    "T28": (
        "panel/test_manners.py::test_t28_a_strict_policy_is_kept",
        "live/test_browser.py::test_t28_a_strict_policy_is_not_violated",
        "dashboard/test_in_browser.py::test_t28_a_strict_policy_is_kept_and_nothing_foreign_is_asked_for",
    ),
    # A long answer.
    "T29": (
        "panel/test_manners.py::test_t29_an_answer_of_two_thousand_tokens_is_painted_in_few_pieces_and_is_exact",
        "live/test_browser.py::test_t29_a_long_text_in_many_pieces_is_whole",
    ),
    # French.
    "T30": (
        "panel/test_translated.py::test_t30_a_person_who_reads_french_meets_french",
        "panel/test_translated.py::test_t30_no_english_word_is_left",
        "panel/test_translated.py::test_t30_what_a_script_is_told_is_translated_too",
        "panel/test_language.py::test_with_babel_strings_come_from_the_domain_of_the_package",
        "dashboard/test_language.py::test_no_english_word_is_left",
    ),
    # 360 pixels.
    "T31": (
        "panel/test_manners_of_pages.py::test_t31_every_page_fits_360_pixels_in_both_directions",
        "panel/test_manners.py::test_t31_it_fits_a_narrow_page_and_has_buttons_to_hit",
        "dashboard/test_in_browser.py::test_t31_it_fits_a_narrow_page_and_has_targets_to_hit",
        "example_app/test_studio_in_browser.py::test_no_page_scrolls_sideways_or_has_small_buttons",
    ),
    # What a run has cost.
    "T32": ("dashboard/test_run_page.py::test_t32_the_cost_of_a_run_equals_its_model_calls_to_the_last_digit",),
    # A run that is exported and played again.
    "T33": (
        "dashboard/test_in_browser.py::"
        "test_t33_a_run_is_exported_in_the_browser_and_comes_out_the_same_in_a_clean_database",
        "runs/test_replay.py::test_a_run_of_two_tools_comes_out_the_same",
        "runs/test_replay.py::test_a_result_a_broadcast_and_a_row_that_differ_are_all_named",
        "dashboard/test_run_page.py::test_the_export_is_what_the_command_prints",
    ),
    # What could not be sent.
    "T34": (
        "panel/test_form.py::test_t34_text_is_kept_when_it_could_not_be_sent",
        "panel/test_form.py::test_t34_words_of_a_refusal_are_shown_and_the_text_kept",
    ),
    # Follows at the bottom, and leaves alone who scrolled up.
    "T35": (
        "panel/test_run_on_a_page.py::test_t35_the_newest_line_stays_in_view",
        "panel/test_run_on_a_page.py::test_t35_a_reader_who_scrolled_up_is_left_there_and_a_button_goes_to_what_is_new",
        "live/test_actions.py::"
        "test_t35_a_log_that_is_read_to_its_end_follows_and_one_that_was_scrolled_up_stays_and_says_so",
    ),
    # Many viewers.
    "T36": ("panel/test_in_control.py::test_t36_twenty_viewers_get_each_frame_once_and_cost_the_worker_nothing",),
    # Signed out in another tab.
    "T37": (
        "live/test_browser.py::"
        "test_t37_a_logout_in_another_tab_closes_the_socket_within_seconds_and_nothing_more_is_heard",
        "live/test_socket.py::"
        "test_a_logout_closes_the_pages_of_that_browser_within_seconds_and_another_device_comes_back",
    ),
    # Pictures of what a page looks like in each state.
    "T38": ("example_app/test_screenshots.py::test_t38_every_scene_has_its_pictures",),
}


@cache
def defined_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_table_has_every_check() -> None:
    assert list(SHOWN_BY) == [f"T{number:02}" for number in range(1, 39)]


@pytest.mark.parametrize("check", SHOWN_BY)
def test_a_check_is_shown_by_tests_that_exist(check: str) -> None:
    named = [name.split("::") for name in SHOWN_BY[check]]
    assert named
    assert [test for file, test in named if test not in defined_in(file)] == []


def test_a_test_that_is_named_after_a_check_is_in_the_table() -> None:
    listed = {name.split("::")[1] for names in SHOWN_BY.values() for name in names}
    named = {
        test
        for file in TESTS.rglob("test_*.py")
        for test in defined_in(str(file.relative_to(TESTS)))
        if test.startswith("test_t") and test[6:8].isdecimal() and test[8:9] == "_"
    }
    assert sorted(named - listed) == []
