//! The lifecycle carried out against the stand-in, by the real client. Time passes when nobody is
//! being asked, or when a test says that it passes all the same.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects")]

mod machine;
use machine::{Begin, FIRST, PUT_NIC, PUT_POOL, gateway, named, network, nic, pool};

#[tokio::test]
async fn it_finds_its_place_joins_once_and_is_ready() {
    let mut machine = Begin::new().await.start().await;
    let report = machine.ready().await;
    let place = (report.group.as_str(), report.target.as_str(), report.instance.as_str());
    let target = format!("{}/ipConfigurations/ipconfig1", nic(0));
    assert_eq!(place, (pool("weir").as_str(), target.as_str(), "weir-0"));
    assert_eq!((report.state.as_str(), report.region.as_str()), ("member", "westeurope"));
    assert_eq!(machine.azure.with(|world| named(world, &nic(0))), ["weir"]);
    assert_eq!(machine.asked(PUT_NIC, "ok"), 1);
    machine.pass(600).await;
    assert_eq!((machine.asked(PUT_NIC, "ok"), machine.asked(PUT_POOL, "ok")), (1, 0));
    let _ = (gateway(), network("a", "b"), FIRST);
}
