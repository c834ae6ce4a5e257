"""What the images promise: small, without tools, without privileges, quick, and from nowhere."""

import json
import os
import re
import resource
import socket
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from e2e import pods
from testbed import image_archives
from testbed.images import Image
from testbed.kubectl import Kubectl
from testbed.paths import cache_dir
from testbed.providers import Cluster

_LIMIT = 200_000_000
_LIMIT_OF_SPARK = 1_050_000_000
_TOOLS = {
    *("apt", "apt-get", "dpkg", "pip", "pip3", "uv", "easy_install", "perl", "bash"),
    *("gcc", "cc", "c++", "g++", "ld", "as", "make", "curl", "wget", "su", "sudo"),
}
_CACHES = ("var/cache/", "var/lib/apt/", "root/", "var/log/", "tmp/", "run/")
_SETTINGS = ("PIP_", "UV_", "SSL_CERT", "_PROXY", "_proxy", "HOME=", "PYTHONPATH")
_ROOMS = {"sidecar": "namedqueue_sidecar", "operator": "namedqueue_operator"}
_CPU_SECONDS = 2.0


@pytest.fixture(params=["python", "sidecar", "operator"])
def image(request: pytest.FixtureRequest) -> Image:
    given: Image = request.getfixturevalue(f"{request.param}_image")
    return given


@pytest.fixture(params=["sidecar", "operator"])
def room_image(request: pytest.FixtureRequest) -> Image:
    given: Image = request.getfixturevalue(f"{request.param}_image")
    return given


@pytest.fixture
def root(room_image: Image, tmp_path: Path) -> Path:
    """Lay a room's image out in a folder."""
    if os.geteuid() != 0:
        pytest.skip("laying an image out with its owners needs root")
    laid_out = tmp_path / "root"
    laid_out.mkdir(mode=0o755)
    image_archives.unpack(room_image.archive, laid_out)
    return laid_out


def test_an_image_is_small(image: Image) -> None:
    assert image.size < _LIMIT


def test_the_spark_image_is_hardly_larger_than_spark_and_java(spark_image: Image) -> None:
    assert spark_image.size < _LIMIT_OF_SPARK
    assert image_archives.config(spark_image.archive)["config"]["User"] == "65532:65532"


def test_an_image_goes_by_its_name_alone(image: Image) -> None:
    assert image_archives.names(image.archive) == [image.name]


def test_an_image_runs_as_a_known_user_who_is_not_root(image: Image) -> None:
    assert image_archives.config(image.archive)["config"]["User"] == "65532:65532"
    users = _content(image, "etc/passwd").splitlines()
    assert [line for line in users if ":65532:65532:" in line]


def test_an_image_has_no_tools_that_only_an_intruder_would_use(image: Image) -> None:
    folders = ("bin", "sbin")
    paths = [PurePosixPath(entry.name) for entry, _ in image_archives.files(image.archive)]
    found = {path.name for path in paths if path.parent.name in folders}
    assert "python3" in found
    assert not found & _TOOLS
    assert not [path for path in paths if path.name in ("pip", "ensurepip", "setuptools")]


def test_an_image_keeps_no_caches(image: Image) -> None:
    kept = [
        entry.name
        for entry, _ in image_archives.files(image.archive)
        if entry.isfile() and entry.name.startswith(_CACHES)
    ]
    assert [name for name in kept if name not in ("root/.bashrc", "root/.profile")] == []


def test_nothing_in_an_image_is_set_uid_or_writable_by_all(image: Image) -> None:
    entries = [entry for entry, _ in image_archives.files(image.archive) if not entry.issym()]
    assert [entry.name for entry in entries if entry.mode & 0o6000 and entry.isfile()] == []
    open_to_all = [entry for entry in entries if entry.mode & 0o002 and not entry.mode & 0o1000]
    assert [entry.name for entry in open_to_all if not entry.isdev()] == []


def test_an_image_does_not_tell_where_it_was_built(image: Image) -> None:
    config = image_archives.config(image.archive)
    assert [line for line in config["config"]["Env"] if any(s in line for s in _SETTINGS)] == []
    traces = _traces_of_this_machine()
    assert [trace for trace in traces if trace in json.dumps(config).encode()] == []
    for entry, content in image_archives.files(image.archive):
        assert [trace for trace in traces if trace in content] == [], entry.name


def test_an_image_trusts_the_public_authorities_only(image: Image) -> None:
    bundle = _content(image, "etc/ssl/certs/ca-certificates.crt")
    public = {
        content.decode().strip()
        for entry, content in image_archives.files(image.archive)
        if entry.name.startswith("usr/share/ca-certificates/mozilla/") and entry.isfile()
    }
    end = "-----END CERTIFICATE-----"
    trusted = {f"{text.strip()}\n{end}" for text in bundle.split(end) if text.strip()}
    assert trusted
    assert trusted <= public


def test_all_python_in_an_image_is_compiled(room_image: Image) -> None:
    names = {entry.name for entry, _ in image_archives.files(room_image.archive)}
    room = f"site-packages/{_ROOMS[room_image.target]}/__init__.py"
    library = re.compile(r"usr/lib/python3\.[0-9]+/asyncio/__init__\.py")
    sources = [name for name in names if name.endswith(room) or library.fullmatch(name)]
    assert len(sources) == 2
    for source in sources:
        folder = source.removesuffix("__init__.py")
        assert [n for n in names if n.startswith(f"{folder}__pycache__/__init__.cpython-")]


def test_a_room_is_imported_quickly(room_image: Image, root: Path) -> None:
    before = _cpu_of_children()
    libraries = {"sidecar": "aio_pika, uvloop, pydantic", "operator": "kopf, kubernetes.aio"}
    code = f"import {_ROOMS[room_image.target]}, {libraries[room_image.target]}"
    _run(root, "-W", "error::ImportWarning", "-c", code)
    assert _cpu_of_children() - before < _CPU_SECONDS


@pytest.mark.parametrize("room_image", ["sidecar"], indirect=True)
def test_the_sidecar_starts_quickly(root: Path) -> None:
    before = _cpu_of_children()
    assert _run(root, "-m", "namedqueue_sidecar", "--version").startswith("namedqueue ")
    assert _cpu_of_children() - before < _CPU_SECONDS


def test_generated_kubernetes_models_work_without_their_sources(operator_image: Image) -> None:
    names = [entry.name for entry, _ in image_archives.files(operator_image.archive)]
    models = [name for name in names if "kubernetes/aio/client/models/v1_pod" in name]
    assert models
    assert {PurePosixPath(name).suffix for name in models} == {".pyc"}


def test_pods_of_the_images_run_restricted(
    cluster: Cluster,
    kubectl: Kubectl,
    namespace: str,
    python_image: Image,
    sidecar_image: Image,
    operator_image: Image,
) -> None:
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    trust = "import ssl; print('certificates', len(ssl.create_default_context().get_ca_certs()))"
    model = "from kubernetes.aio import client; print(client.V1Pod(kind='Pod').kind)"
    cases = (
        (python_image, {"command": ["python3", "-c", trust]}, r"certificates \d\d\d"),
        (sidecar_image, {"args": ["--version"]}, r"namedqueue \d+\.\d+\.\d+"),
        (operator_image, {"command": ["python", "-c", model]}, r"Pod"),
    )
    for image, process, _ in cases:
        cluster.load_image(image.archive)
        container = pods.container("main", image.name, **process)
        kubectl.apply(pods.pod(image.target, {"containers": [container], "restartPolicy": "Never"}))
    for image, _, expected in cases:
        phase = "--for=jsonpath={.status.phase}=Succeeded"
        kubectl("wait", f"pod/{image.target}", phase, "--timeout=120s")
        assert re.fullmatch(expected, kubectl("logs", image.target).strip())


def _content(image: Image, name: str) -> str:
    return next(
        content.decode()
        for entry, content in image_archives.files(image.archive)
        if entry.name == name
    )


def _traces_of_this_machine() -> list[bytes]:
    """Return words that only this machine would put into an image."""
    repository = Path(__file__).parents[2]
    words = [str(repository), str(cache_dir()), str(Path.home() / ".cache")]
    resolvers = Path("/etc/resolv.conf").read_text().splitlines()
    words += [line.split()[1] for line in resolvers if line.startswith("nameserver ")]
    words += [
        value for name in ("PIP_INDEX_URL", "UV_INDEX_URL") if (value := os.environ.get(name))
    ]
    words += [socket.gethostname(), socket.getfqdn()]
    return [word.encode() for word in words if len(word) > 8 and word != "localhost"]


def _run(root: Path, *arguments: str) -> str:
    """Run the image's Python as its user; a folder of root's is read-only to that one."""
    entry = ["chroot", "--userspec=65532:65532", str(root), "/opt/namedqueue/bin/python"]
    environment = {"PATH": os.defpath + ":/usr/sbin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*entry, *arguments], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _cpu_of_children() -> float:
    """Return their CPU seconds: unlike the clock's, the same on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
