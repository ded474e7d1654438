"""Writes a scene in the DOT language, for Graphviz."""

from __future__ import annotations

from detector.drawing.scene import Arrow, Box, Role, Scene

STYLES = {
    Role.CORE: 'fillcolor="#fde2e1", color="#c0392b"',
    Role.BEHIND: 'fillcolor="#fdf0d9", color="#c07d1f"',
    Role.WAITING: 'fillcolor="#eef3f8", color="#5b7a99"',
    Role.FREE: 'fillcolor="#e6f4e8", color="#3b8c4a"',
    Role.MISSING: 'fillcolor="#f1f1f1", color="#888888", style="rounded,filled,dashed"',
}


def dot_of(scene: Scene) -> str:
    """Draw ``scene`` as a digraph. A party's wait is the second line of its box and the tooltip of its arrows."""
    title = "\n".join(filter(None, (scene.title, scene.subtitle, scene.left_out)))
    lines = [
        "digraph waits {",
        f"  graph [rankdir=LR, label={_quoted(title)}, labelloc=t, fontname=sans];",
        '  node [shape=box, style="rounded,filled", fontname=sans];',
        "  edge [fontname=sans, fontsize=10];",
        *(_box(box) for box in scene.boxes),
        *(_arrow(arrow) for arrow in scene.arrows),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    label = "\n".join((box.name, *box.waits, *(("suggested victim",) if box.victim else ())))
    return f"  {_quoted(box.name)} [label={_quoted(label)}, {STYLES[box.role]}, penwidth={3 if box.witness else 1}];"


def _arrow(arrow: Arrow) -> str:
    colour = ', color="#c0392b", penwidth=2' if arrow.core else ', color="#8a98a6"'
    return f"  {_quoted(arrow.waiter)} -> {_quoted(arrow.target)} [tooltip={_quoted(arrow.label)}{colour}];"


def _quoted(text: str) -> str:
    """A DOT string: only quotes and backslashes are escaped, and a line break is written ``\\n``."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
