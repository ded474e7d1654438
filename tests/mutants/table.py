"""Mutants: one change in one place of the shipped code each, and the test that notices it.

Those of the rules that only whole worlds show are in :mod:`detector.simulator.checks.mutants`. These are of what a test shows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` is in the source of ``module`` exactly once; with ``new`` in its place ``test`` fails, whose name is the promise.

    ``quick``: it is tried in ``make test``, too.
    """

    name: str
    module: str
    old: str
    new: str
    test: str
    quick: bool = False


MUTANTS = (
    # what the detector makes of reports and looks
    Mutant(
        "a round that was under way when the snapshot began confirms it",
        "detector.core.verification",
        "if since < begun}",
        "if since < begun + 1e9}",
        "tests/core/test_verification.py::test_rule_5_a_round_that_was_under_way_when_the_snapshot_began_confirms_nothing",
        quick=True,
    ),
    Mutant(
        "what has moved since the cut is idle for certain",
        "detector.core.verification",
        "        elif look.happenings != report.happenings:\n",
        "        elif False:\n",
        "tests/core/test_verification.py::test_rule_6_something_that_happens_between_cut_and_look_is_doubt",
    ),
    Mutant(
        "what was looked at is looked at no more",
        "detector.core.verification",
        "or now >= self.looked_at + self.again_seconds",
        "or False",
        "tests/core/test_verification.py::test_rule_4_a_verdict_that_stands_is_looked_at_again_after_twice_the_time",
    ),
    Mutant(
        "no answer to a look is an answer",
        "detector.core.verification",
        "        return PartyLook(party=party, unchanged=True, doubt=reason)",
        "        return PartyLook(party=party, unchanged=True)",
        "tests/core/test_verification.py::test_rule_3_what_was_not_looked_at_is_doubt_with_its_reason",
    ),
    Mutant(
        "a way out that is nobody's ends no wait",
        "detector.core.look_amendment",
        "if not look.unchanged or any(way.party is None for way in look.ways_out):",
        "if not look.unchanged:",
        "tests/core/test_verification.py::test_rule_2_a_way_out_frees_and_its_holder_is_named",
    ),
    Mutant(
        "a retried call needs no second round",
        "detector.core.channels",
        "repeated=call.copies_max > 1 or (bool(answers) and call.copies_max > 0))",
        "repeated=False)",
        "tests/core/test_verification.py::test_rule_5_a_call_that_may_be_repeated_takes_a_second_round",
    ),
    Mutant(
        "doubt about a target is forgotten",
        "detector.core.resolution",
        "if any(target.doubtful for target in lasting):",
        "if False:",
        "tests/core/test_verification.py::test_rule_5_a_call_that_may_be_repeated_takes_a_second_round",
    ),
    Mutant(
        "the caller of a retried call is certain",
        "detector.core.cancellation",
        "ways.doubtful = ways.doubtful or (call.copies_max > 1 and not call.hedged)",
        "pass",
        "tests/core/test_cancellation.py::test_a_caller_stuck_for_certain_is_a_doubtful_way_out_of_a_handler_that_may_be_left_behind",
    ),
    Mutant(
        "a wait with doubtful ways out is certain",
        "detector.core.cancellation",
        "uncoloured = one.uncoloured or ways.doubtful",
        "uncoloured = one.uncoloured",
        "tests/core/test_cancellation.py::test_a_caller_stuck_for_certain_is_a_doubtful_way_out_of_a_handler_that_may_be_left_behind",
    ),
    Mutant(
        "a reply item in transit is a wait",
        "detector.core.resolution",
        "if wait.uncoloured and place.served is not None and place.served.sent != call.received:",
        "if False:",
        "tests/core/test_verification.py::test_an_item_in_transit_is_still_no_wait_once_the_reader_was_looked_at",
    ),
    Mutant(
        "a request item in transit is a wait",
        "detector.core.resolution",
        "or call.doubtful or call.sent != served.received:",
        "or call.doubtful:",
        "tests/core/test_resolution.py::test_a_reader_waits_for_its_caller_unless_an_item_is_in_transit",
    ),
    Mutant(
        "a pool of unknown size is full",
        "detector.core.channels",
        "self.pool.size is not None and len(self.busy)",
        "self.pool.size is None or len(self.busy)",
        "tests/core/test_channels.py::test_nobody_knows_how_full_a_pool_of_unknown_size_is",
    ),
    Mutant(
        "what a dead server had is still in transit",
        "detector.core.channels",
        "Where.UNKNOWN if self._has_lost_a_server(call) else Where.REQUEST_IN_TRANSIT",
        "Where.REQUEST_IN_TRANSIT",
        "tests/core/test_channels.py::test_a_call_is_perhaps_at_the_missing_member_though_another_server_of_its_channel_has_gone",
        quick=True,
    ),
    Mutant(
        "a caller that hung up is served",
        "detector.core.channels",
        "for name, served in records if not served.hung_up]",
        "for name, served in records]",
        "tests/core/test_channels.py::test_a_server_that_has_lost_its_caller_does_not_have_the_call_any_more",
    ),
    Mutant(
        "a doubt is settled while a copy travels",
        "detector.core.channels",
        "(call.hedged or call.doubtful) and len(records)",
        "call.hedged and len(records)",
        "tests/core/test_channels.py::test_a_call_in_doubt_is_not_over_while_another_copy_of_it_may_travel",
        quick=True,
    ),
    Mutant(
        "no copy of a hedged call travels",
        "detector.core.channels",
        "if copies >= call.copies_max or not held.among:",
        "if True:",
        "tests/core/test_cancellation.py::test_a_hedged_call_may_have_a_copy_in_transit_until_all_have_arrived",
    ),
    Mutant(
        "a caller with a deadline is bound for ever",
        "detector.core.cancellation",
        "alone = call.deadline is None and call.copies_max <= 1",
        "alone = call.copies_max <= 1",
        "tests/core/test_cancellation.py::test_a_caller_whose_call_has_a_deadline_may_cancel_the_handler_then",
    ),
    Mutant(
        "a waiter with a deadline is bound for ever",
        "detector.core.cancellation",
        "wait.needs == len(wait.among) and wait.deadline is None and",
        "wait.needs == len(wait.among) and",
        "tests/core/test_cancellation.py::test_a_caller_that_waits_until_a_deadline_may_cancel_the_handler_then",
    ),
    Mutant(
        "settled doubts are those that somebody has",
        "detector.core.resolution",
        "is Where.REPLY_IN_TRANSIT]",
        "is not Where.REPLY_IN_TRANSIT]",
        "tests/core/test_initiator.py::test_the_next_mark_tells_a_caller_which_of_its_doubts_the_servers_have_settled",
    ),
    Mutant(
        "who has reported is still under suspicion",
        "detector.core.initiator",
        "        self._suspects.discard(name)\n        meant",
        "        meant",
        "tests/core/test_initiator.py::test_a_member_that_reports_again_is_waited_for_as_long_as_the_others",
    ),
    Mutant(
        "who was silent is not under suspicion",
        "detector.core.initiator",
        "self._suspects.update(name for name in pending.missing() if name in self._members)",
        "pass",
        "tests/core/test_initiator.py::test_members_that_missed_the_last_snapshot_are_waited_for_briefly",
    ),
    Mutant(
        "settled doubts are said for ever",
        "detector.core.initiator",
        "        self._settled.clear()\n",
        "",
        "tests/core/test_initiator.py::test_a_caller_is_told_once_that_a_doubt_of_its_is_settled",
    ),
    Mutant(
        "one incarnation's doubts are another's",
        "detector.core.initiator",
        "if self._members.get(process.instance) == process\n",
        "if process.instance in self._members\n",
        "tests/core/test_initiator.py::test_the_next_mark_tells_a_caller_which_of_its_doubts_the_servers_have_settled",
    ),
    Mutant(
        "wishes are granted without end",
        "detector.core.initiator",
        "self._wishes, self._wishes_at = allowance - 1, now",
        "self._wishes_at = now",
        "tests/core/test_initiator.py::test_wishes_are_granted_a_bounded_number_of_times_a_second",
    ),
    # what the agent records
    Mutant(
        "a thread that waits is idle",
        "stilltrue.protocol.recorder",
        "if not (self._made or self._served or waits):",
        "if not (self._made or self._served):",
        "tests/client/test_recorder.py::test_a_process_whose_thread_waits_is_blocked_and_not_idle",
        quick=True,
    ),
    Mutant(
        "an answered hedged call is over",
        "stilltrue.protocol.recorder",
        "if made.channel.hedged if stamp is not None else in_doubt:",
        "if stamp is None and in_doubt:",
        "tests/client/test_recorder.py::test_a_hedged_call_is_in_doubt_though_it_was_answered_for_other_copies_may_travel",
    ),
    Mutant(
        "what was dropped for space is not lost",
        "stilltrue.protocol.recorder",
        "return self._callers.lost + self._doubts.dropped",
        "return self._callers.lost",
        "tests/client/test_recorder.py::test_doubts_dropped_for_space_are_owned_up_to_until_their_time_has_passed",
    ),
    Mutant(
        "a forgotten caller is not lost",
        "stilltrue.protocol.memory",
        "            self.lost += 1\n",
        "",
        "tests/client/test_recorder.py::test_a_caller_forgotten_for_space_is_owned_up_to",
    ),
    Mutant(
        "forgotten answers are not said",
        "stilltrue.protocol.memory",
        "self._forgotten = max(self._forgotten, oldest)",
        "pass",
        "tests/client/test_recorder.py::test_rule_3_what_is_forgotten_for_space_is_owned_up_to",
    ),
    Mutant(
        "ways out of some of several are further targets",
        "stilltrue.protocol.report",
        "        if self.needs > 1:\n            return self.ending(now)\n",
        "",
        "tests/client/test_recorder.py::test_a_wait_for_several_of_many_ends_by_itself_where_a_way_out_cannot_be_said",
    ),
    Mutant(
        "what a step carries travels twice",
        "stilltrue.protocol.recorder",
        "({} if step.spent else step.carried, step.changes)",
        "(step.carried, step.changes)",
        "tests/client/test_recorder.py::test_what_a_step_has_sent_with_its_call_does_not_travel_with_its_reply_again",
    ),
    Mutant(
        "any open step swallows the reply",
        "stilltrue.protocol.recorder",
        "step = self._in_steps.get(made.number) if self._in_steps else None",
        "step = next(iter(self._in_steps.values()), None)",
        "tests/client/test_recorder.py::test_an_open_step_holds_back_the_reply_to_its_own_message_only",
    ),
    Mutant(
        "the parent's call is settled in the child",
        "stilltrue.protocol.recorder",
        "if self._made.get(made.number) is not made:",
        "if made.number not in self._made:",
        "tests/client/test_recorder.py::test_a_call_of_before_a_fork_settles_nothing_in_the_child",
    ),
    Mutant(
        "nobody remembers who answered",
        "stilltrue.protocol.recorder",
        "made.channel.answered_by(stamp.source, stamp.incarnation)",
        "pass",
        "tests/client/test_recorder.py::test_the_channel_remembers_who_answered_with_which_incarnation",
    ),
    Mutant(
        "wait numbers repeat",
        "stilltrue.protocol.recorder",
        "        number: WaitNumber = self._next_wait\n        self._next_wait = number + 1",
        "        number: WaitNumber = self._next_wait",
        "tests/client/test_recorder.py::test_no_two_waits_bear_one_number",
    ),
    Mutant(
        "the highest number seen is the last one",
        "stilltrue.protocol.memory",
        "self.highest = max(self.highest, number)",
        "self.highest = number",
        "tests/client/test_recorder.py::test_the_highest_number_seen_is_not_the_last_one",
    ),
    Mutant(
        "a forged colour burns the numbers to come",
        "stilltrue.protocol.recorder",
        "if stamp.colour - self.colour > self._bounds.colour_jump_max:",
        "if False:",
        "tests/client/test_recorder.py::test_a_forged_colour_does_not_burn_the_numbers_to_come",
    ),
    Mutant(
        "a reply inside an open step makes no cut",
        "stilltrue.runtime.recorder",
        "        if report is not None:\n            self._put(report)\n\n    # -- steps",
        "        if report is not None and not self.steps:\n            self._put(report)\n\n    # -- steps",
        "tests/client/test_locked_recorder.py::test_a_reply_of_a_newer_colour_while_a_step_is_open",
    ),
    Mutant(
        "the cut that a request forces is not sent",
        "stilltrue.runtime.recorder",
        "            if report is not None:\n                self._put(report)\n        return served",
        "        return served",
        "tests/client/test_locked_recorder.py::test_a_request_of_a_newer_colour",
    ),
    Mutant(
        "the cut that a reply forces is not sent",
        "stilltrue.runtime.recorder",
        "        if report is not None:\n            self._put(report)\n\n    # -- steps",
        "\n    # -- steps",
        "tests/client/test_locked_recorder.py::test_a_reply_of_a_newer_colour",
    ),
    Mutant(
        "another thread's call takes the open step",
        "stilltrue.runtime.recorder",
        "step = self.steps.get(here()) if self.steps else None",
        "step = next(iter(self.steps.values()), None)",
        "tests/client/test_waits.py::test_a_step_of_one_thread_is_not_anothers",
    ),
    Mutant(
        "settled doubts are never told",
        "stilltrue.runtime.recorder",
        "            self.recorder.doubts_settled(settled)\n",
        "",
        "tests/client/test_locked_recorder.py::test_a_mark_tells_which_calls_in_doubt_were_answered_before_the_cut_is_made",
    ),
    Mutant(
        "one of several that is done already is waited for",
        "stilltrue.runtime.tasks",
        'if len(left) < len(names["fs"]) and names["return_when"] == asyncio.FIRST_COMPLETED:',
        "if False:",
        "tests/client/test_observe.py::test_something_beside_a_task_may_come_by_itself",
    ),
    Mutant(
        "a failing observer saw nothing",
        "stilltrue.runtime.observation",
        "every wait of every task may end by itself\n            return Observation(",
        "nothing is known\n            return Observation() or Observation(",
        "tests/client/test_observe.py::test_what_cannot_be_observed_leaves_every_wait_in_doubt",
    ),
    Mutant(
        "too many tasks are none",
        "stilltrue.runtime.observation",
        "        if len(known) > TASKS_MAX:\n            return Observation(deadlines={party: now for _, party in known})",
        "        if len(known) > TASKS_MAX:\n            return Observation()",
        "tests/client/test_observe.py::test_what_cannot_be_observed_leaves_every_wait_in_doubt",
    ),
    Mutant(
        "the deadline of a handler is not its task's",
        "stilltrue.runtime.observation",
        "ends += [root.deadline] if root.deadline is not None else []",
        "ends += []",
        "tests/client/test_observe.py::test_the_deadline_of_the_served_call_ends_the_waits_of_the_handlers_tasks",
    ),
    Mutant(
        "a plain future beside a task never comes",
        "stilltrue.runtime.observation",
        "if len(tasks) < len(awaited.futures) and not awaited.needs_all:",
        "if False:",
        "tests/client/test_observe.py::test_something_beside_a_task_may_come_by_itself",
    ),
    Mutant(
        "a task that moves meanwhile is where it was",
        "stilltrue.runtime.observation",
        "if one.future is not None and blocking_future(one.task) is not one.future:",
        "if False:",
        "tests/client/test_observe.py::test_a_task_that_moves_while_it_is_looked_at_is_in_doubt",
    ),
    # checkpoints
    Mutant(
        "finished vertices stay so over a restart",
        "detector.checkpoints.protocol.coordinator",
        "        self._finished.clear()\n",
        "",
        "tests/checkpoints/test_coordinator.py::test_after_a_restart_vertices_that_had_finished_take_part_again",
    ),
    # files
    Mutant(
        "a file's bytes are not settled before its name",
        "detector.ops.atomic_file",
        "            os.fsync(file.fileno())\n",
        "",
        "tests/checkpoints/test_files.py::test_a_file_is_on_the_disk_before_it_takes_its_name_and_its_name_before_the_writer_goes_on",
    ),
    Mutant(
        "a file's name is not settled",
        "detector.ops.atomic_file",
        "    sync(path.parent)\n\n\ndef",
        "\n\ndef",
        "tests/checkpoints/test_files.py::test_a_file_is_on_the_disk_before_it_takes_its_name_and_its_name_before_the_writer_goes_on",
    ),
    # the archive
    Mutant(
        "an archive file's bytes are not settled",
        "detector.archive.files",
        "sync(Path(aside))  # the bytes",
        "pass  # the bytes",
        "tests/archive/test_files.py::test_a_files_bytes_are_on_the_disk_before_its_name_is",
    ),
    Mutant(
        "what a compaction replaced stays",
        "detector.archive.compact",
        '    store.remove(f"{PurePosixPath(file.path).parent}/{name}" for file in scan.files for name in file.replaces)\n',
        "",
        "tests/archive/test_compact.py::test_cut_short_before_the_old_ones_are_gone",
    ),
    Mutant(
        "a compacted file does not say what it replaces",
        "detector.archive.compact",
        "replaces=[name for file in bundle for name in (file.name, *file.replaces)]",
        "replaces=[]",
        "tests/archive/test_compact.py::test_cut_short_before_the_old_ones_are_gone",
    ),
    Mutant(
        "rows that a file lost are not missed",
        "detector.archive.compact",
        "        if rows != file.rows:\n",
        "        if False:\n",
        "tests/archive/test_compact.py::test_a_file_that_reads_short_is_torn_and_none_of_its_rows_is_lost",
    ),
    Mutant(
        "days to come are compacted",
        "detector.archive.compact",
        "scan = store.scan(table, until=until)\n    left_out",
        "scan = store.scan(table)\n    left_out",
        "tests/archive/test_compact.py::test_young_days_are_left_alone",
    ),
    # the service
    Mutant(
        "pinned evidence goes first",
        "detector.service.storage.sqlite",
        "OVER (ORDER BY pinned DESC, id DESC)",
        "OVER (ORDER BY pinned, id DESC)",
        "tests/service/test_snapshot_store.py::test_what_nothing_points_to_goes_first_when_the_store_is_full",
    ),
    Mutant(
        "a damaged store is not looked for",
        "detector.service.storage.sqlite",
        '        if health != "ok":\n',
        "        if False:\n",
        "tests/service/test_snapshot_store.py::test_damage_is_looked_for_before_anything_leans_on_the_file",
    ),
    Mutant(
        "an incident's evidence is not pinned",
        "detector.service.storage.snapshot_store",
        "            database.pin(incident.first_snapshot)\n            database.pin(incident.last_snapshot)\n",
        "",
        "tests/service/test_snapshot_store.py::test_the_snapshots_of_an_incident_are_kept_however_old",
    ),
    Mutant(
        "a verdict about older waits ends an incident",
        "detector.service.detection.incidents",
        "            and begun >= incident.seen\n",
        "",
        "tests/service/test_incidents.py::test_a_free_snapshot_that_began_before_it_was_seen_does_not_end_it",
    ),
    Mutant(
        "an incident ends without word of its processes",
        "detector.service.detection.incidents",
        "if any(name not in seen.words and",
        "if any(False and",
        "tests/service/test_incidents.py::test_silence_of_its_processes_does_not_end_it",
    ),
    Mutant(
        "an incident that comes back is a new one",
        "detector.service.detection.incidents",
        "        if before is not None:  # rule 4",
        "        if False:  # rule 4",
        "tests/service/test_incidents.py::test_it_ends_with_the_last_process_of_its_core_and_comes_back_under_its_id",
    ),
    Mutant(
        "an incident ends with the first of its processes",
        "detector.service.detection.incidents",
        "            if incident.runs() <= self._ended:",
        "            if True:",
        "tests/service/test_incidents.py::test_the_end_of_one_process_is_word_of_it_and_the_others_must_report",
    ),
)
