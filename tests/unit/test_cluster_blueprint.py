"""Names and addresses of a local cluster fit together, whatever its name."""

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from testbed.localcluster.blueprint import MAX_NODES, Blueprint

_INTERFACE_NAME_LIMIT = 15

blueprints = st.builds(
    Blueprint,
    name=st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True),
    node_count=st.integers(1, MAX_NODES),
    subnet=st.integers(0, 255),
    api_port=st.just(1),
    etcd_port=st.just(2),
    etcd_peer_port=st.just(3),
)


@given(blueprints)
def test_interface_names_fit_the_kernel_and_differ(plan: Blueprint) -> None:
    names = [plan.bridge, *(node.host_link for node in plan.nodes)]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= _INTERFACE_NAME_LIMIT


@given(blueprints)
def test_pods_services_and_nodes_never_share_an_address(plan: Blueprint) -> None:
    machines = ip_network(f"{plan.host_address}/24", strict=False)
    pods = [ip_network(node.pod_range) for node in plan.nodes]
    ranges = [machines, ip_network(plan.service_range), *pods]
    assert not any(
        one.overlaps(other) for index, one in enumerate(ranges) for other in ranges[index + 1 :]
    )
    assert all(ip_network(plan.pod_range).overlaps(each) for each in pods)
    assert all(ip_address(node.address) in machines for node in plan.nodes)
    assert ip_address(plan.dns_address) in ip_network(plan.service_range)


def test_a_control_plane_without_nodes_stays_on_loopback() -> None:
    plan = Blueprint("alone", 0, None, 6443, 2379, 2380)
    assert plan.server == "https://127.0.0.1:6443"
    assert plan.nodes == ()
