//! Configuration of the appliance in the container.

use tests::lab::settings::Plane;

/// Returns the configuration for this plane, which replaces the example that the book's page on the
/// installation copies: its NICs are the lab's interfaces `in0` and `eg0`.
pub fn config(plane: Plane) -> String {
    let [plane_key, attach] = plane.keys();
    let ring = "framesz=9216,blocksz=36864";
    let [ingress, egress] = match plane.is_xdp() {
        true => ["in0".to_owned(), "eg0".to_owned()],
        false => {
            [format!("net_af_packet0,iface=in0,{ring}"), format!("net_af_packet1,iface=eg0,{ring}")]
        }
    };
    format!(
        r#"name = "package"
{plane_key}

[fastpath]
{attach}
lcores = [1]
main_core = 0
hugepages = false
memory_mib = 256
buffers = 8192
buffer_bytes = 10240
idle = "sleep"

[region]
max_flows = 65536

[ingress]
device = "{ingress}"
address = "10.0.1.10/24"
mtu = 9001

[egress]
device = "{egress}"
address = "10.0.2.10/24"
mtu = 9001

[nat]
addresses = "10.0.2.10"

[[gateway]]
name = "aws"
kind = "aws"
sources = "10.0.1.16/28"

[health]
listen = "0.0.0.0:8080"

[tables]
seed = "cGFja2FnZSB0ZXN0"
"#
    )
}
