//! With FRR.

use routers::{Daemon, Frr, PATIENCE, wait_for};

use crate::network::*;

#[test]
fn first() -> Outcome {
    let (here, there) = neighbours()?;
    let frr = Frr::start(&there, &[Daemon::Bgpd], "router bgp 65002\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n neighbor 10.0.0.1 remote-as 4200000001\n neighbor 10.0.0.1 timers connect 1\n neighbor fd00::1 remote-as 4200000001\n neighbor fd00::1 capability extended-nexthop\n address-family ipv6 unicast\n neighbor 10.0.0.1 activate\n neighbor fd00::1 activate\n exit-address-family\n")?;
    let mut ours = Ours::start(&here)?;
    let k = key(FOUR);
    let mut w = wanted(k);
    w.settings.graceful_restart = graceful(false);
    ours.speaker.add(k, w);
    let mut a = by("10.0.0.1");
    a.med = Some(7); a.communities = vec![0xfde8_0001, 0xffff_ff01]; a.large = vec![[OUR_ASN, 1, 2]]; a.prepend = 2;
    let mut b = a.clone();
    b.next_hop = "fd00::1".parse()?;
    ours.speaker.set_routes(k, &table([("192.0.2.1/32", a), ("2001:db8::1/128", b)]));
    ours.wait_until_up(k)?;
    ours.speaker.complete();
    ours.wait_until_told()?;
    wait_for("route", PATIENCE, || { let said = frr.json("show bgp ipv6 unicast")?; Ok((said["routes"].get("2001:db8::1/128").is_some(), said.to_string())) })?;
    println!("{:#}", frr.json("show bgp ipv4 unicast 192.0.2.1/32")?);
    println!("{:#}", frr.json("show bgp ipv6 unicast")?);
    println!("{:#}", frr.json("show bgp neighbors 10.0.0.1")?);
    println!("{:#?}", ours.speaker.report(std::time::Instant::now()));
    ours.speaker.remove(k, bgp::peer::Stop::Shutdown("bye for now".into()));
    let t = std::time::Instant::now();
    ours.end();
    println!("ended in {:?}", t.elapsed());
    println!("{:#}", frr.json("show bgp neighbors 10.0.0.1")?);
    Ok(())
}
