//! EC2: instances, interfaces and routes.

use crate::answer::{Members, ServiceError, element, fail, get, list, need, page};
use crate::state::{AwsState, Instance, Interface, StringMap, Table};

/// Performs an operation; returns the content of its response element.
pub fn answer(
    cloud: &mut AwsState,
    operation: &str,
    request: &Members,
) -> Result<String, ServiceError> {
    let dry = get(request, "DryRun") == Some("true");
    match operation {
        "DescribeInstances" => instances(cloud, request),
        "DescribeNetworkInterfaces" => interfaces(cloud, request),
        "DescribeSecurityGroups" => security_groups(cloud, request),
        "DescribeRouteTables" => tables(cloud, request),
        "ReplaceRoute" => replace_route(cloud, request, dry),
        "ModifyNetworkInterfaceAttribute" => modify_interface(cloud, request, dry),
        _ => fail("InvalidAction", format!("The action {operation} is not valid")),
    }
}

/// Returns all filters with their values.
fn filters(request: &Members) -> Vec<(String, Vec<String>)> {
    let names = list(request, "Filter", ".Name").into_iter().enumerate();
    let values = |n: usize| list(request, &format!("Filter.{}.Value", n + 1), "");
    let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    names.map(|(n, name)| (name.to_owned(), owned(values(n)))).collect()
}

/// Returns true if all filters match; `value` returns the property that a filter compares.
fn matches_filters<'a>(
    filters: &[(String, Vec<String>)],
    tags: &StringMap,
    value: impl Fn(&str) -> Option<&'a str>,
) -> Result<bool, ServiceError> {
    for (name, values) in filters {
        let matched = match name.strip_prefix("tag:") {
            Some(key) => tags.get(key).is_some_and(|v| values.contains(v)),
            None if name == "tag-key" => values.iter().any(|key| tags.contains_key(key)),
            None => match value(name) {
                Some(v) => values.iter().any(|w| w == v),
                None => {
                    let why = format!("The filter '{name}' is invalid");
                    return fail("InvalidParameterValue", why);
                }
            },
        };
        if !matched {
            return Ok(false);
        }
    }
    Ok(true)
}

fn items(name: &str, each: impl Iterator<Item = String>) -> String {
    let each: String = each.map(|item| format!("<item>{item}</item>")).collect();
    format!("<{name}>{each}</{name}>")
}

fn tags(all: &StringMap) -> String {
    items("tagSet", all.iter().map(|(k, v)| element("key", k) + &element("value", v)))
}

/// Returns a page of items in an element, with the token of the next page.
fn list_page<T: Clone>(
    cloud: &AwsState,
    request: &Members,
    all: &[T],
    name: &str,
    one: impl Fn(&T) -> String,
) -> Result<String, ServiceError> {
    let (found, next) = page(all.to_vec(), get(request, "NextToken"), cloud.page)?;
    let next = next.map(|n| element("nextToken", n)).unwrap_or_default();
    Ok(items(name, found.iter().map(one)) + &next)
}

fn instances(cloud: &AwsState, request: &Members) -> Result<String, ServiceError> {
    let ids = list(request, "InstanceId", "");
    for id in &ids {
        if cloud.instances.iter().all(|i| i.id != *id) {
            let why = format!("The instance ID '{id}' does not exist");
            return fail("InvalidInstanceID.NotFound", why);
        }
    }
    let (filters, mut found) = (filters(request), Vec::new());
    for instance in &cloud.instances {
        let value = |name: &str| match name {
            "vpc-id" => Some(instance.vpc.as_str()),
            "instance-state-name" => Some(instance.state.as_str()),
            _ => None,
        };
        let selected = ids.is_empty() || ids.contains(&instance.id.as_str());
        if selected && matches_filters(&filters, &instance.tags, value)? {
            found.push(instance.clone());
        }
    }
    list_page(cloud, request, &found, "reservationSet", |i: &Instance| {
        let first = i.interfaces.first();
        let nics = (0..).zip(&i.interfaces).map(|(n, nic): (u32, _)| {
            let attachment = format!("<attachment>{}</attachment>", element("deviceIndex", n));
            element("networkInterfaceId", &nic.id) + &attachment
        });
        let state = format!("<instanceState>{}</instanceState>", element("name", &i.state));
        let zone = format!("<placement>{}</placement>", element("availabilityZone", &i.zone));
        let address = first.and_then(|nic| nic.addresses.first());
        let address = address.map(|a| element("privateIpAddress", a)).unwrap_or_default();
        let subnet = first.map(|nic| element("subnetId", &nic.subnet)).unwrap_or_default();
        let inside = element("instanceId", &i.id)
            + &state
            + &zone
            + &address
            + &subnet
            + &element("vpcId", &i.vpc)
            + &tags(&i.tags)
            + &items("networkInterfaceSet", nics);
        element("reservationId", "r-1") + &items("instancesSet", std::iter::once(inside))
    })
}

fn interfaces(cloud: &AwsState, request: &Members) -> Result<String, ServiceError> {
    let (filters, mut found) = (filters(request), Vec::new());
    for instance in &cloud.instances {
        for (index, nic) in instance.interfaces.iter().enumerate() {
            let value = |name: &str| match name {
                "attachment.instance-id" => Some(instance.id.as_str()),
                "subnet-id" => Some(nic.subnet.as_str()),
                _ => None,
            };
            if matches_filters(&filters, &nic.tags, value)? {
                found.push((instance.clone(), index, nic.clone()));
            }
        }
    }
    let one = |(instance, index, nic): &(Instance, usize, Interface)| {
        let (six, four): (Vec<_>, Vec<_>) = nic.addresses.iter().partition(|a| a.contains(':'));
        let four_items = four.iter().map(|a| element("privateIpAddress", a));
        let attachment = format!(
            "<attachment>{}{}</attachment>",
            element("deviceIndex", index),
            element("instanceId", &instance.id)
        );
        let groups = nic.security_groups.iter().map(|g| element("groupId", g));
        element("networkInterfaceId", &nic.id)
            + &element("subnetId", &nic.subnet)
            + &element("vpcId", &instance.vpc)
            + &element("description", &nic.description)
            + &element("macAddress", &nic.mac)
            + &element("privateIpAddress", four.first().map_or("", |a| a.as_str()))
            + &element("sourceDestCheck", nic.check)
            + &items("groupSet", groups)
            + &attachment
            + &tags(&nic.tags)
            + &items("privateIpAddressesSet", four_items)
            + &items("ipv6AddressesSet", six.iter().map(|a| element("ipv6Address", a)))
    };
    list_page(cloud, request, &found, "networkInterfaceSet", one)
}

fn security_groups(cloud: &AwsState, request: &Members) -> Result<String, ServiceError> {
    let ids = list(request, "GroupId", "");
    let exists = |id: &&str| cloud.security_groups.iter().any(|g| g.id == **id);
    if let Some(id) = ids.iter().find(|id| !exists(id)) {
        return fail("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"));
    }
    let selected = cloud.security_groups.iter().filter(|g| ids.contains(&g.id.as_str()));
    let found: Vec<_> = selected.cloned().collect();
    list_page(cloud, request, &found, "securityGroupInfo", |group| {
        let rules = group.ingress.iter().map(|(protocol, ports, prefix)| {
            let ports = ports.map(|(a, b)| element("fromPort", a) + &element("toPort", b));
            let (set, member) = match prefix.contains(':') {
                true => ("ipv6Ranges", "cidrIpv6"),
                false => ("ipRanges", "cidrIp"),
            };
            element("ipProtocol", protocol)
                + &ports.unwrap_or_default()
                + &items(set, std::iter::once(element(member, prefix)))
        });
        element("groupId", &group.id)
            + &element("groupName", "weir")
            + &items("ipPermissions", rules)
    })
}

fn tables(cloud: &AwsState, request: &Members) -> Result<String, ServiceError> {
    let (filters, mut found) = (filters(request), Vec::new());
    for table in &cloud.tables {
        let value = |name: &str| (name == "vpc-id").then_some(table.vpc.as_str());
        if matches_filters(&filters, &StringMap::new(), value)? {
            found.push(table.clone());
        }
    }
    list_page(cloud, request, &found, "routeTableSet", |table: &Table| {
        let bound = table.subnets.iter().map(|s| element("subnetId", s) + "<main>false</main>");
        let main = table.main.then(|| "<main>true</main>".to_owned());
        let routes = table.routes.iter().map(|(destination, target)| {
            let six = destination.contains(':');
            let name = if six { "destinationIpv6CidrBlock" } else { "destinationCidrBlock" };
            let eni = target.starts_with("eni-");
            let gone = eni && interface(cloud, target).is_none();
            element(name, destination)
                + &element(if eni { "networkInterfaceId" } else { "gatewayId" }, target)
                + &element("state", if gone { "blackhole" } else { "active" })
        });
        element("routeTableId", &table.id)
            + &element("vpcId", &table.vpc)
            + &items("routeSet", routes)
            + &items("associationSet", bound.chain(main))
    })
}

fn interface<'a>(cloud: &'a AwsState, id: &str) -> Option<&'a Interface> {
    cloud.instances.iter().flat_map(|i| &i.interfaces).find(|nic| nic.id == id)
}

fn no_interface<T>(id: &str) -> Result<T, ServiceError> {
    let why = format!("The networkInterface ID '{id}' does not exist");
    fail("InvalidNetworkInterfaceID.NotFound", why)
}

const DONE: &str = "<return>true</return>";

fn dry_run_error<T>() -> Result<T, ServiceError> {
    let message = "Request would have succeeded, but DryRun flag is set.".to_owned();
    Err(ServiceError { status: 412, code: "DryRunOperation".into(), message })
}

fn replace_route(
    cloud: &mut AwsState,
    request: &Members,
    dry: bool,
) -> Result<String, ServiceError> {
    let destination = match get(request, "DestinationIpv6CidrBlock") {
        Some(destination) => destination,
        None => need(request, "DestinationCidrBlock")?,
    };
    let nic = need(request, "NetworkInterfaceId")?;
    if interface(cloud, nic).is_none() {
        return no_interface(nic);
    }
    let id = need(request, "RouteTableId")?;
    let Some(table) = cloud.tables.iter_mut().find(|t| t.id == id) else {
        let why = format!("The routeTable ID '{id}' does not exist");
        return fail("InvalidRouteTableID.NotFound", why);
    };
    match table.routes.get_mut(destination) {
        None => fail("InvalidRoute.NotFound", "no route with that destination"),
        Some(_) if dry => dry_run_error(),
        Some(target) => {
            *target = nic.into();
            Ok(DONE.into())
        }
    }
}

fn modify_interface(
    cloud: &mut AwsState,
    request: &Members,
    dry: bool,
) -> Result<String, ServiceError> {
    let id = need(request, "NetworkInterfaceId")?;
    let value = need(request, "SourceDestCheck.Value")? == "true";
    let mut all = cloud.instances.iter_mut().flat_map(|i| &mut i.interfaces);
    let Some(nic) = all.find(|nic| nic.id == id) else { return no_interface(id) };
    if dry {
        return dry_run_error();
    }
    nic.check = value;
    Ok(DONE.into())
}
