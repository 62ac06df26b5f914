"""Size of the package against its ceilings: code lines, files, longest function.

python tools/house.py                       # src/uncollapse against tools/ceilings.txt
python tools/house.py SOURCES CEILINGS      # any other folder and file

Code lines hold code: blank lines, comments and docstrings do not count. The last column is the
share of imports and `__all__` among them. Exit status 1 above a ceiling.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent
LONGEST = "longest-function"  # its line in the file of ceilings
FREE_OF_IT = "_kernels"  # a compiled loop is one function
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass
class Size:
    """What is measured of a file, and summed over a package."""

    files: int = 0
    code: int = 0
    imports: int = 0
    longest: int = 0
    longest_name: str = ""

    def add(self, other: Size) -> None:
        """Count another file or package in."""
        self.files += other.files
        self.code += other.code
        self.imports += other.imports
        if other.longest > self.longest:
            self.longest, self.longest_name = other.longest, other.longest_name


def size_of(path: Path) -> Size:
    """Measure one file."""
    text = path.read_text(encoding="utf-8")
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    size = Size(files=1)
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if documented and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(_lines(node.body[0]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = len(_lines(node))
            if path.parent.name == "cli":  # the options of a command are its signature
                length = _lines(node).stop - node.body[0].lineno
            if length > size.longest:
                size.longest, size.longest_name = length, f"{path.name}: {node.name}"
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_all(node):
            size.imports += len(_lines(node))
    size.code = len(code)
    return size


def sizes_of(sources: Path) -> dict[str, Size]:
    """The size of each package, of the files beside them as `(root)`, and of `all`."""
    sizes: dict[str, Size] = {}
    for path in sorted(sources.rglob("*.py")):
        parts = path.relative_to(sources).parts
        for package in (parts[0] if len(parts) > 1 else "(root)", "all"):
            sizes.setdefault(package, Size()).add(size_of(path))
    return dict(sorted(sizes.items(), key=lambda item: (item[0] == "all", item[0])))


def read_ceilings(path: Path) -> tuple[dict[str, tuple[int, int]], int]:
    """`(lines and files by package, lines of a function)`."""
    rows = [line.split("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines()]
    numbers = {row[0]: [int(number) for number in row[1:]] for row in rows if row}
    (longest,) = numbers.pop(LONGEST)
    return {package: (code, files) for package, (code, files) in numbers.items()}, longest


def complaints(
    sizes: dict[str, Size], ceilings: dict[str, tuple[int, int]], longest: int
) -> list[str]:
    """One sentence for each ceiling that is exceeded; a package without one is a complaint too."""
    sentences = []
    for package, size in sizes.items():
        if package not in ceilings:
            sentences.append(f"{package} has no ceiling")
            continue
        code, files = ceilings[package]
        if size.code > code:
            sentences.append(f"{package} has {size.code} lines of code, at most {code} allowed")
        if size.files > files:
            sentences.append(f"{package} has {size.files} files, at most {files} allowed")
        if size.longest > longest and package not in (FREE_OF_IT, "all"):
            where = f"{package}/{size.longest_name}"
            sentences.append(f"{where} has {size.longest} lines, at most {longest} allowed")
    return sentences


def _lines(node: ast.AST) -> range:
    return range(node.lineno, node.end_lineno + 1)  # type: ignore[attr-defined]


def _is_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    )


def main() -> int:
    """Print the sizes and what is above a ceiling."""
    given = [Path(argument) for argument in sys.argv[1:]]
    sources, file = given or [TOOLS.parent / "src" / "uncollapse", TOOLS / "ceilings.txt"]
    sizes = sizes_of(sources)
    ceilings, longest = read_ceilings(file)
    print("package        code   most  files   most  function  imports")
    for package, size in sizes.items():
        code, files = ceilings.get(package, (0, 0))
        share = size.imports / max(size.code, 1)
        print(
            f"{package:12} {size.code:6} {code:6} {size.files:6} {files:6} "
            f"{size.longest:9} {share:8.1%}"
        )
    sentences = complaints(sizes, ceilings, longest)
    for sentence in sentences:
        print(f"too large: {sentence}")
    return int(bool(sentences))


if __name__ == "__main__":
    raise SystemExit(main())
