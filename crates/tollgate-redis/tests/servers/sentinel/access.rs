//! A user with no more rights than it needs, on servers and on sentinels.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MAX_PERIOD, Quota, Rule};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer, sentinels::Group};
use tollgate_test_services::{rules::INSTANCES, service::Service};

/// The line of the guide for a server on this port.
fn line(port: u16) -> &'static str {
    let page = include_str!("../../../guide/redis.md");
    let begin = format!("127.0.0.1:{port}> ");
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(&begin));
    lines.next().expect("the page has the line")
}

/// Makes the user of a line on these servers, but for one command, under another name.
async fn user_without(servers: &[&RedisServer], line: &str, command: &str, name: &str) {
    assert!(command.is_empty() || line.contains(command));
    let words = line.split(' ').filter(|word| *word != command);
    let words: Vec<_> = words
        .map(|word| if word == "tollgate" { name } else { word })
        .collect();
    for server in servers {
        assert_eq!(server.command(&words).await, "+OK\r\n", "{words:?}");
    }
}

/// The users of the guide but for one command on the sentinels.
async fn address_without(group: &Group, command: &str) -> String {
    let name = format!("without{command}").replace(['+', '|'], "-");
    let servers = [&group.master, &group.replica];
    user_without(&servers, line(6379), "", &name).await;
    let sentinels: Vec<_> = group.sentinels.iter().collect();
    user_without(&sentinels, line(26_379), command, &name).await;
    let address = group.url().replace("://", &format!("://{name}:sesame@"));
    format!("{address}?sentinel_username={name}&sentinel_password=sesame")
}

#[tokio::test]
async fn the_users_of_the_guide_may_do_all_that_a_store_does_also_after_a_failover() {
    let mut group = Group::start().await;
    let address = address_without(&group, "").await;
    let mut service = Service::named("shop", &address).await;
    service.recovers("the start").await;
    eventually("the instances know of each other", || async {
        let mut stores = service.instances.iter().map(|instance| &instance.store);
        let all = stores.all(|store| u64::from(store.instances()) == INSTANCES);
        all.then_some(())
    })
    .await;
    group.is_replicated().await;
    group.master.kill();
    group.is_promoted().await;
    service.recovers("the fail-over").await;
    service.end().await;
}

#[tokio::test]
async fn an_error_names_the_command_that_the_user_of_the_guide_lacks() {
    let group = Group::start().await;
    let address = address_without(&group, "+sentinel|get-master-addr-by-name").await;
    let store = RedisStore::builder(&address, "shop", tollgate_redis::Keys::plain())
        .deadline(Duration::from_secs(10))
        .connect()
        .expect("a valid address");
    let rule = Rule::new("api", Quota::fixed_window(2, MAX_PERIOD));
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    eventually("an error names the command", || async {
        let reset = limiter.reset("api", &Key::of("client"));
        let error = reset.expect("the rule is there").await.err()?;
        let command = "'sentinel|get-master-addr-by-name'";
        error.to_string().contains(command).then_some(())
    })
    .await;
}
