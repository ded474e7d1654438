"""`stilltrue evaluate`: exact exit codes, one line for bad input, verdicts in the documents' order."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detector.commands.archives.evaluate import evaluate
from detector.commands.evaluation import parallel_evaluation as batch
from detector.commands.evaluation.offline import Question

RING = {"waits": [{"waiter": "a/1", "among": ["b/1"]}, {"waiter": "b/1", "among": ["a/1"]}]}
LINE = {"waits": [{"waiter": "a/1", "among": ["b/1"]}]}
DOUBT = {"waits": [{"waiter": "a/1", "among": ["b/1"]}], "missing": ["b"]}


def run(*words: str, text: str = "") -> Result:
    return CliRunner().invoke(evaluate, list(words), input=text)


def on(document: object, *words: str) -> Result:
    return run("deadlock", "-", *words, text=json.dumps(document))


@pytest.mark.parametrize(("document", "code", "holds"), [(RING, 0, True), (LINE, 1, False), (DOUBT, 3, None), ({}, 1, False)])
def test_the_exit_code_is_the_answer(document: object, code: int, holds: bool | None) -> None:
    result = on(document, "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["holds"] is holds
    assert result.stderr == ""


def test_the_fixed_keys_come_first_and_in_order() -> None:
    fixed = ["predicate", "holds", "remainder", "core", "behind", "witness", "missing", "until", "snapshot"]
    verdict = json.loads(on(RING, "--json").stdout)
    assert list(verdict)[: len(fixed)] == fixed
    assert list(verdict["witness"]) == ["kind", "parties", "text"]


def test_several_files_hold_when_all_hold(tmp_path: Path) -> None:
    files = {}
    for name, document in {"ring": RING, "line": LINE, "doubt": DOUBT}.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(document))
    assert run("deadlock", str(files["ring"]), str(files["ring"])).exit_code == 0
    assert run("deadlock", str(files["ring"]), str(files["doubt"])).exit_code == 3
    mixed = run("deadlock", *map(str, files.values()))
    assert mixed.exit_code == 1
    assert [line.split(":")[0] for line in mixed.stdout.splitlines() if line.startswith("/")] == list(map(str, files.values()))


def test_jsonl_writes_one_verdict_a_line_in_order_with_ids() -> None:
    documents: list[dict[str, Any]] = [RING | {"id": "x"}, LINE, DOUBT | {"id": 7}]
    result = run("deadlock", "--jsonl", "-", text="\n".join(map(json.dumps, documents)) + "\n\n")
    assert result.exit_code == 0
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert [verdict["holds"] for verdict in verdicts] == [True, False, None]
    assert [verdict.get("id", "none") for verdict in verdicts] == ["x", "none", 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: empty; a document is a JSON object"),
        ('{\n"waits": [\n', "invalid JSON"),
        ("[]", "1: must be an object"),
        ('{"waits": {}}', "1: waits: must be a list"),
        (
            '{"waits": [\n{"waiter": "a", "among": ["b"]},\n{"waiter": "a",\n "among": ["b"], "needs": 2}]}',
            "4: waits[1].needs: ",
        ),
        ('{"waits": [{"waiter": "a", "among": []}]}', "1: waits[0].among: must name"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "needs": true}]}', "waits[0].needs: must be an integer, not true"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "needs": 1.5}]}', "waits[0].needs: must be an integer"),
        ('{"waits": [{"waiter": "a",\n"among": ["b",\n 3]}]}', "3: waits[0].among[1]: must be the name of a party"),
        ('{"waits": [{"among": ["b"]}]}', "waits[0].waiter: must be the name of a party"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "deadline": "soon"}]}', "waits[0].deadline: must be a time"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "number": -1}]}', "waits[0].number: must be between"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "uncoloured": 1}]}', "waits[0].uncoloured: must be true or false"),
        ('{"processes": {"a": {"activity": "sleepy"}}}', 'processes.a.activity: must be "active"'),
        ('{"processes": {"a/b": {}}}', "processes.a/b: must be the name of a process"),
        ('{"processes": {"a": {"facts": {"token": null}}}}', "processes.a.facts.token: must be a number"),
        ('{"in_transit": [{"target": "b"}]}', "in_transit[0].source: must be the name of a process"),
        ('{"missing": [1]}', "missing[0]: must be the name of a process"),
        ('{"waits": [\n{"waiter": "a",\n"neds": 1}], "hue": 3}', '3: waits[0].neds: unknown key; did you mean "needs"?'),
        ('{\n"wiats": []}', '2: wiats: unknown key; did you mean "waits"?'),
        ('{"missing": NaN}', "1: invalid JSON: NaN"),
        ("[" * 100_000, "invalid JSON: nested too deeply"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "needs": ' + "9" * 5000 + "}]}", "invalid JSON"),
        ('{"waits": [{"waiter": "a", "among": ["b"], "needs": ' + "9" * 50 + "}]}", "waits[0].needs: must be between 1 and 1"),
    ],
)
def test_bad_input_is_one_line_with_file_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    result = run("deadlock", str(file))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"stilltrue: {file}: ")
    assert said in result.stderr


def test_bad_input_on_a_later_line_comes_after_the_verdicts_before_it(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(f'{json.dumps(RING)}\n\n{{"waits": [3]}}\n{json.dumps(RING)}\n')
    result = run("deadlock", "--jsonl", str(file))
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == f"stilltrue: {file}: 3: waits[0]: must be an object, not 3\n"


def test_unknown_keys_are_reported_on_standard_error_and_ignored(tmp_path: Path) -> None:
    file = tmp_path / "strange.json"
    file.write_text(
        '{"waits": [\n{"waiter": "a", "resource": 3, "among": ["a"]}],\n"id": 7, "expect": {}, "x-mine": 1, "hue": 3}'
    )
    said = 'unknown key, ignored (keys of your own must begin with "x-")'
    alone = run("deadlock", str(file), str(file), "--json")
    assert alone.exit_code == 0
    assert alone.stderr.splitlines() == [
        f"stilltrue: {file}: 3: hue: {said}",
        f"stilltrue: {file}: 2: waits[0].resource: {said}",
    ]
    lines = tmp_path / "strange.jsonl"
    lines.write_text(f"{json.dumps(RING)}\n" + json.dumps(RING | {"hue": 1}) + "\n" + json.dumps(RING | {"hue": 2}) + "\n")
    many = run("deadlock", "--jsonl", str(lines))
    assert (many.exit_code, many.stderr) == (0, f"stilltrue: {lines}: 2: hue: {said}\n")


def test_a_verdict_is_refused_since_it_would_pass_for_an_empty_snapshot(tmp_path: Path) -> None:
    snapshot, verdict = tmp_path / "snapshot.json", tmp_path / "verdict.json"
    snapshot.write_text(json.dumps(RING))
    told = run("deadlock", str(snapshot), "--json")
    assert told.exit_code == 0
    verdict.write_text(told.stdout)
    again = run("deadlock", str(verdict))
    assert (again.exit_code, again.stdout) == (2, "")
    assert again.stderr.startswith(f"stilltrue: {verdict}: 1: predicate: this is a verdict, not a snapshot; ")


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    absent = run("deadlock", str(tmp_path / "absent.json"))
    assert (absent.exit_code, absent.stderr) == (2, f"stilltrue: {tmp_path / 'absent.json'}: No such file or directory\n")
    folder = run("deadlock", str(tmp_path))
    assert (folder.exit_code, folder.stderr.count("\n")) == (2, 1)
    binary = tmp_path / "binary.json"
    binary.write_bytes(b'{"waits": [\n"\xff"]}')
    assert run("deadlock", str(binary)).stderr == f"stilltrue: {binary}: 2: is not UTF-8\n"


def test_an_unknown_predicate_is_one_line_that_lists_the_known_ones() -> None:
    result = run("deadlok", "-", text="{}")
    assert result.exit_code == 2
    assert result.stderr.startswith("stilltrue: no predicate 'deadlok' (did you mean deadlock?); available: deadlock, gridlock")


def test_settings_reach_the_predicate() -> None:
    document = json.dumps({"processes": {"a": {"activity": "idle", "facts": {"lease": 2}}}})
    assert run("token-lost", "-", "--set", "fact=lease", "--set", "expected=2", text=document).exit_code == 1
    assert run("token-lost", "-", "--set", "fact=lease", "--set", "expected=3", text=document).exit_code == 0
    unknown = run("token-lost", "-", "--set", "colour=red", text=document)
    assert unknown.exit_code == 2
    assert unknown.stderr == "stilltrue: predicate 'token-lost': it has no setting 'colour'; available: fact, expected\n"


def test_each_scope_gets_its_own_verdict() -> None:
    processes = {
        name: {"activity": activity, "labels": {"team": team}}
        for name, activity, team in [("a", "idle", "red"), ("b", "active", "blue")]
    }
    words = ["termination", "-", "--json", "--scope", "team=red", "--scope", "team=blue"]
    result = run(*words, text=json.dumps({"processes": processes}))
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(verdict["snapshot"]["scope"], verdict["holds"]) for verdict in verdicts] == [
        ("team=red", True),
        ("team=blue", False),
    ]
    assert result.exit_code == 1


def test_other_processes_give_the_same_lines_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps((RING if at % 3 else LINE) | {"id": at}) + "\n" for at in range(400)) + "{]\n")
    alone = run("deadlock", "--jsonl", str(file))
    monkeypatch.setattr(batch, "CHUNK_CHARACTERS_MIN", 2_000)
    monkeypatch.setattr(batch, "CHUNKS_ALONE_MAX", 2)
    together = run("deadlock", "--jsonl", str(file))
    assert (together.exit_code, together.stdout, together.stderr) == (alone.exit_code, alone.stdout, alone.stderr)
    assert [json.loads(line)["id"] for line in together.stdout.splitlines()] == list(range(400))
    assert together.exit_code == 2


def test_many_files_give_the_same_on_several_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for at in range(12):
        files.append(str(tmp_path / f"{at}.json"))
        Path(files[-1]).write_text(json.dumps((RING if at % 3 else LINE) | {"id": at, "hue": 1}))
    Path(files[-1]).write_text("{]")
    alone = run("deadlock", "--json", *files)
    monkeypatch.setattr(batch, "CHUNK_CHARACTERS_MIN", 1)
    together = run("deadlock", "--json", *files)
    assert (together.exit_code, together.stdout, together.stderr) == (alone.exit_code, alone.stdout, alone.stderr)
    assert [json.loads(line)["snapshot"]["id"] for line in together.stdout.splitlines()] == list(range(11))
    assert (together.exit_code, together.stderr.count(files[-1])) == (2, 1)


def test_a_slow_writer_gets_each_answer_before_its_next_line() -> None:
    words = [sys.executable, "-m", "detector.cli", "evaluate", "deadlock", "--jsonl", "-"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        for at in range(3):
            command.stdin.write(json.dumps(RING | {"id": at}) + "\n  ")  # the next line has begun
            assert select.select([command.stdout], [], [], 60)[0], "no answer while the input is open"
            assert json.loads(command.stdout.readline())["id"] == at
        command.stdin.close()
    assert command.returncode == 0


@pytest.mark.parametrize("full", [1, 3])
def test_at_a_pause_of_the_input_no_answer_is_held_back(full: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what other processes are at, nor the last line."""
    monkeypatch.setattr(batch, "CHUNKS_ALONE_MAX", 0)
    line = json.dumps(LINE)
    asked: list[int] = []

    def chunks() -> Iterator[batch.Chunk]:
        for at in range(full):
            yield batch.Chunk("f", at + 1, (line,), lull=False)
        yield batch.Chunk("f", full + 1, (line,), lull=True)
        asked.append(answers)
        yield batch.Chunk("f", full + 2, (line,), lull=False)

    question = Question(predicate="deadlock")
    answers = 0
    for done in batch.evaluate_chunks(question, question.prepare(), chunks(), cores=2):
        answers += len(done.verdicts)
    assert (asked, answers) == ([full + 1], full + 2)


@pytest.mark.parametrize(("form", "begins"), [("svg", "<svg "), ("dot", "digraph "), ("graphml", "<graphml "), ("links", "{")])
def test_a_document_can_be_drawn(form: str, begins: str) -> None:
    result = on(RING, "--draw", form)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(begins)
    assert "a/1" in result.stdout
    assert on(LINE, "--draw", form).exit_code == 1


@pytest.mark.parametrize("words", [("--jsonl",), ("--json",), ("other.json",), ("--scope", "a=b", "--scope", "a=c")])
def test_a_picture_shows_one_verdict(words: tuple[str, ...]) -> None:
    assert (on(RING, "--draw", "svg", *words).exit_code, on(RING, "--draw", "svg", *words).stdout) == (2, "")


def test_text_for_people_names_core_and_behind() -> None:
    waits = [*RING["waits"], {"waiter": "c/9", "among": ["a/1"], "since": "2026-11-20T14:02:08Z"}]
    result = run("deadlock", "-", text=json.dumps({"waits": waits, "ended": "2026-11-20T14:02:11Z"}))
    assert result.stdout.startswith("deadlock: TRUE\n  cycle: a/1 -> b/1 -> a/1\n")
    assert "  behind it (1): c/9\n" in result.stdout
    assert "core (" not in result.stdout, "the witness has named it"
    assert result.stdout.count("would free all 3") == 1
    waits += [{"waiter": "d/1", "among": ["e/1"]}, {"waiter": "e/1", "among": ["d/1"]}]
    both = run("deadlock", "-", text=json.dumps({"waits": waits})).stdout
    assert "  - separately, 2 parties wait for each other: d/1, e/1\n" in both
    assert "core (" not in both, "its waits have named it"
    far = [{"waiter": f"f/{at:02}", "among": [f"f/{(at + 1) % 9:02}"]} for at in range(9)]
    assert "  core (13): a/1, b/1, d/1, e/1, f/00, " in run("deadlock", "-", text=json.dumps({"waits": waits + far})).stdout
    doubt = on(DOUBT).stdout
    assert (doubt.count("missing (1): b"), "depends on (" in doubt) == (1, False)


def test_an_unexpected_end_is_reported_on_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"waits": []}\n\n{"waits": [\n')
    result = run("deadlock", "--jsonl", str(tmp_path / "l.jsonl"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "l.jsonl: 3: invalid JSON" in result.stderr


def test_what_is_not_one_document_is_refused_with_the_way_to_evaluate_it(tmp_path: Path) -> None:
    many, archive = tmp_path / "many.json", tmp_path / "archive"
    many.write_text("".join(f"{json.dumps(document)}\n" for document in (RING, LINE)))
    archive.mkdir()
    (archive / "part.parquet").write_bytes(b"PAR1\xff")
    for file, words in (
        (many, "2: invalid JSON: Extra data; if each line is a document, add --jsonl\n"),
        (archive, "an archive is evaluated by 'stilltrue analyze'\n"),
        (archive / "part.parquet", "an archive is evaluated by 'stilltrue analyze'\n"),
    ):
        result = run("deadlock", str(file))
        assert (result.exit_code, result.stderr.count("\n"), result.stderr.endswith(words)) == (2, 1, True), result.stderr
    assert run("deadlock", "--jsonl", str(many)).exit_code == 0


def test_a_scope_without_members_has_no_answer() -> None:
    result = run("deadlock", "-", "--scope", "team=none", text=json.dumps(RING))
    assert (result.exit_code, "no process has the labels team=none" in result.stdout) == (3, True)
