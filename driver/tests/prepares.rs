//! Every statement is one that PostgreSQL takes on the migrated schema.
#![allow(clippy::unwrap_used)]

use awa_core::SchemaName;
use awa_devpg::Server;
use awa_driver::{Connector, Sql, migrate};
use awa_model_tests::samples::one_of_each;
use awa_sqlgen::Mode;

#[tokio::test]
async fn every_statement_prepares_on_the_migrated_schema() {
    let server = Server::shared().unwrap();
    let mut client = Connector::without_tls(server.url()).unwrap().connect().await.unwrap();
    let schema = SchemaName::new("prepared \"here\"").unwrap();
    migrate(&mut client, &schema).await.unwrap();
    let sql = Sql::new(schema);
    let mut prepared = 0;
    for step in one_of_each().unwrap() {
        let statement = sql.render(&step);
        match statement.mode {
            Mode::Bind(params) | Mode::PlanAndBind(params) => {
                let ready = client.prepare(&statement.sql).await;
                let ready = ready.unwrap_or_else(|e| panic!("{step}: {e:?}"));
                assert_eq!(ready.params().len(), params.len(), "{step}");
                prepared += 1;
            }
            // A script takes locks or truncates: it runs, and is undone.
            Mode::Script => {
                client.batch_execute("begin").await.unwrap();
                let ran = client.batch_execute(&statement.sql).await;
                ran.unwrap_or_else(|e| panic!("{step}: {e:?}"));
                client.batch_execute("rollback").await.unwrap();
            }
            Mode::CopyIn(_) => {}
        }
    }
    assert!(prepared > 40);
}
