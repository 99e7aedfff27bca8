//! What the cloud is asked and told: who this machine is, where it belongs, that it may get
//! traffic, and that it leaves. One room a cloud; what they share lies beside.
#![forbid(unsafe_code)]

pub mod aws;
pub mod report;
