//! EC2 responses, and their conversion to Weir's types.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use crate::imds::parse_mac;
use crate::types::{Instance, NetworkInterface, Permission, Route, RouteTable, SecurityGroup};

/// A list: an element with `<item>` elements, or an empty element.
#[derive(Deserialize)]
struct Items<T> {
    #[serde(rename = "item", default = "Vec::new")]
    items: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { items: Vec::new() }
    }
}

#[derive(Deserialize)]
struct Tag {
    key: String,
    #[serde(default)]
    value: String,
}

fn tags(items: Items<Tag>) -> BTreeMap<String, String> {
    items.items.into_iter().map(|tag| (tag.key, tag.value)).collect()
}

/// Response of DescribeInstances.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservations {
    #[serde(default)]
    reservation_set: Items<Reservation>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reservation {
    #[serde(default)]
    instances_set: Items<InstanceItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstanceItem {
    instance_id: String,
    instance_state: State,
    private_ip_address: Option<String>,
    placement: Option<Placement>,
    vpc_id: Option<String>,
    subnet_id: Option<String>,
    #[serde(default)]
    tag_set: Items<Tag>,
    #[serde(default)]
    network_interface_set: Items<AttachedInterface>,
}

#[derive(Deserialize)]
struct State {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    availability_zone: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachedInterface {
    network_interface_id: String,
    attachment: Option<Attachment>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    device_index: Option<u32>,
}

impl Page for Reservations {
    type Item = Instance;

    fn into_page(self) -> (Vec<Instance>, Option<String>) {
        let items = self.reservation_set.items.into_iter();
        let items = items.flat_map(|reservation| reservation.instances_set.items);
        (items.map(Instance::from).collect(), self.next_token)
    }
}

impl From<InstanceItem> for Instance {
    fn from(item: InstanceItem) -> Instance {
        let interfaces = item.network_interface_set.items.into_iter();
        let placed =
            |i: AttachedInterface| Some((i.attachment?.device_index?, i.network_interface_id));
        Instance {
            id: item.instance_id,
            state: item.instance_state.name,
            address: item.private_ip_address.and_then(|a| a.parse().ok()),
            zone: item.placement.and_then(|p| p.availability_zone),
            vpc_id: item.vpc_id,
            subnet_id: item.subnet_id,
            tags: tags(item.tag_set),
            interfaces: interfaces.filter_map(placed).collect(),
        }
    }
}

/// Response of DescribeNetworkInterfaces.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interfaces {
    #[serde(default)]
    network_interface_set: Items<InterfaceItem>,
    next_token: Option<String>,
}

/// A network interface in the response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceItem {
    network_interface_id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tag_set: Items<Tag>,
    attachment: Option<Attachment>,
    private_ip_address: String,
    #[serde(default)]
    private_ip_addresses_set: Items<PrivateAddress>,
    #[serde(default, rename = "ipv6AddressesSet")]
    ipv6_addresses_set: Items<Ipv6Address>,
    source_dest_check: bool,
    subnet_id: String,
    vpc_id: String,
    #[serde(default)]
    group_set: Items<GroupItem>,
    mac_address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrivateAddress {
    private_ip_address: String,
}

#[derive(Deserialize)]
struct Ipv6Address {
    #[serde(rename = "ipv6Address")]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupItem {
    group_id: Option<String>,
}

impl Page for Interfaces {
    type Item = InterfaceItem;

    fn into_page(self) -> (Vec<InterfaceItem>, Option<String>) {
        (self.network_interface_set.items, self.next_token)
    }
}

impl TryFrom<InterfaceItem> for NetworkInterface {
    type Error = String;

    fn try_from(item: InterfaceItem) -> Result<NetworkInterface, String> {
        let InterfaceItem { network_interface_id: id, mac_address, .. } = item;
        let address = |text: &str| {
            let address = text.parse::<IpAddr>();
            address.map_err(|_| format!("`{text}` of {id} is not an IP address"))
        };
        let primary_address = address(&item.private_ip_address)?;
        let first = item.private_ip_addresses_set.items.iter().map(|a| &a.private_ip_address);
        let all = first.chain(item.ipv6_addresses_set.items.iter().map(|a| &a.address));
        let mut addresses: Vec<IpAddr> = all.map(|a| address(a)).collect::<Result<_, _>>()?;
        if !addresses.contains(&primary_address) {
            addresses.insert(0, primary_address);
        }
        let mac = parse_mac(&mac_address)
            .ok_or_else(|| format!("`{mac_address}` of {id} is not a MAC address"))?;
        Ok(NetworkInterface {
            description: item.description,
            tags: tags(item.tag_set),
            device_index: item.attachment.and_then(|a| a.device_index),
            primary_address,
            addresses,
            source_dest_check: item.source_dest_check,
            subnet_id: item.subnet_id,
            vpc_id: item.vpc_id,
            security_groups: item.group_set.items.into_iter().filter_map(|g| g.group_id).collect(),
            mac,
            id,
        })
    }
}

/// Response of DescribeSecurityGroups.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroups {
    #[serde(default, rename = "securityGroupInfo")]
    groups: Items<SecurityGroupItem>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityGroupItem {
    group_id: String,
    #[serde(default)]
    group_name: String,
    #[serde(default)]
    ip_permissions: Items<PermissionItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionItem {
    ip_protocol: String,
    from_port: Option<i32>,
    to_port: Option<i32>,
    #[serde(default)]
    ip_ranges: Items<Prefix>,
    #[serde(default, rename = "ipv6Ranges")]
    ipv6_ranges: Items<Prefix>,
    #[serde(default)]
    groups: Items<GroupItem>,
    #[serde(default)]
    prefix_list_ids: Items<PrefixList>,
}

#[derive(Deserialize)]
struct Prefix {
    #[serde(rename = "cidrIp", alias = "cidrIpv6")]
    prefix: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrefixList {
    prefix_list_id: String,
}

impl Page for SecurityGroups {
    type Item = SecurityGroup;

    fn into_page(self) -> (Vec<SecurityGroup>, Option<String>) {
        let group = |item: SecurityGroupItem| SecurityGroup {
            id: item.group_id,
            name: item.group_name,
            ingress: item.ip_permissions.items.into_iter().map(Permission::from).collect(),
        };
        (self.groups.items.into_iter().map(group).collect(), self.next_token)
    }
}

impl From<PermissionItem> for Permission {
    fn from(item: PermissionItem) -> Permission {
        let port = |port: Option<i32>| u16::try_from(port?).ok();
        let prefixes = item.ip_ranges.items.into_iter().chain(item.ipv6_ranges.items);
        let groups = item.groups.items.into_iter().filter_map(|g| g.group_id);
        let lists = item.prefix_list_ids.items.into_iter().map(|l| l.prefix_list_id);
        Permission {
            protocol: item.ip_protocol,
            ports: port(item.from_port).zip(port(item.to_port)),
            prefixes: prefixes.map(|p| p.prefix).collect(),
            others: groups.chain(lists).collect(),
        }
    }
}

/// Response of DescribeRouteTables.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTables {
    #[serde(default)]
    route_table_set: Items<RouteTableItem>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteTableItem {
    route_table_id: String,
    #[serde(default)]
    vpc_id: String,
    #[serde(default)]
    association_set: Items<Association>,
    #[serde(default)]
    route_set: Items<RouteItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Association {
    subnet_id: Option<String>,
    #[serde(default)]
    main: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteItem {
    destination_cidr_block: Option<String>,
    destination_ipv6_cidr_block: Option<String>,
    destination_prefix_list_id: Option<String>,
    network_interface_id: Option<String>,
    instance_id: Option<String>,
    gateway_id: Option<String>,
    nat_gateway_id: Option<String>,
    transit_gateway_id: Option<String>,
    vpc_peering_connection_id: Option<String>,
    state: Option<String>,
}

impl Page for RouteTables {
    type Item = RouteTable;

    fn into_page(self) -> (Vec<RouteTable>, Option<String>) {
        let table = |item: RouteTableItem| {
            let bound = item.association_set.items;
            RouteTable {
                id: item.route_table_id,
                vpc_id: item.vpc_id,
                main: bound.iter().any(|b| b.main),
                subnets: bound.into_iter().filter_map(|b| b.subnet_id).collect(),
                routes: item.route_set.items.into_iter().filter_map(route).collect(),
            }
        };
        (self.route_table_set.items.into_iter().map(table).collect(), self.next_token)
    }
}

fn route(item: RouteItem) -> Option<Route> {
    let destination = item
        .destination_cidr_block
        .or(item.destination_ipv6_cidr_block)
        .or(item.destination_prefix_list_id)?;
    // The interface comes first: a route to an instance has the ids of both.
    let target = item
        .network_interface_id
        .or(item.instance_id)
        .or(item.gateway_id)
        .or(item.nat_gateway_id)
        .or(item.transit_gateway_id)
        .or(item.vpc_peering_connection_id);
    Some(Route { destination, target, active: item.state.as_deref() != Some("blackhole") })
}

/// One page of a list.
pub(super) trait Page {
    type Item;
    /// Returns the items of the page and the token of the next one.
    fn into_page(self) -> (Vec<Self::Item>, Option<String>);
}
