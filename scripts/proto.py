"""Generates `f1common/pb` from `proto/*.proto`: messages, their type stubs and the gRPC stubs and servicers.

The files import one another as `f1common/pb/NAME.proto`, so that the generated modules import one another as
`f1common.pb.NAME_pb2`. The output is committed; `tests/unit/test_proto_drift.py` regenerates it and compares.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("f1common/pb")


def generate(root: Path, output: Path) -> list[Path]:
    """Compiles all of `root/proto` into `output/f1common/pb`.

    Returns the generated files, relative to `output`, sorted. Raises RuntimeError when the compiler refuses a file; its
    words are on standard error.
    """
    sources = sorted(path.name for path in (root / "proto").glob("*.proto"))
    if not sources:
        return []
    arguments = [
        "protoc",
        f"-I{PACKAGE}={root / 'proto'}",
        f"--proto_path={well_known_types()}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        f"--grpc_python_out={output}",
        *(f"{PACKAGE}/{name}" for name in sources),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("the protobuf compiler refused proto/*.proto")
    return generated_files(output)


def generated_files(root: Path) -> list[Path]:
    """The generated files present under `root/f1common/pb`, relative to `root`, sorted."""
    return sorted(
        path.relative_to(root) for path in (root / PACKAGE).glob("*_pb2*.py*") if path.suffix in {".py", ".pyi"}
    )


def well_known_types() -> Path:
    """The folder of `google/protobuf/*.proto` that the compiler brings along."""
    return Path(protoc.__file__).parent / "_proto"


def main() -> int:
    for stale in generated_files(ROOT):
        (ROOT / stale).unlink()
    for path in generate(ROOT, ROOT):
        print(path)
    init = ROOT / PACKAGE / "__init__.py"
    if not init.exists():
        init.parent.mkdir(parents=True, exist_ok=True)
        init.write_text('"""Generated from proto/ by `make proto`. Never edited."""\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
