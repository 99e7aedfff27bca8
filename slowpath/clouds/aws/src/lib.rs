//! AWS: the instance, its target group, and the way in and out of it.

#![forbid(unsafe_code)]

pub mod account;
pub mod advice;
pub mod call;
pub mod doctor;
pub mod drive;
pub mod ec2;
mod elb;
pub mod failure;
pub mod group;
pub mod imds;
pub mod leader;
pub mod life;
pub mod remote;
pub mod roles;
pub mod routes;
pub mod scaling;
pub mod signed;
pub mod ssm;
pub mod told;
pub mod wait;
